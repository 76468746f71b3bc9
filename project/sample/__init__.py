"""The demo's sample: a fortnight of a few teams, told through the store as their agents would have lived it.

Every status is there, a tree of sub-sessions, calls that wait for people, one of them past its deadline, a
branch, a request to stop, a run that is stuck, staged writes, a session past its time, failures with causes
that come back, and a transcript of four hundred messages. No worker of the demo drives these agent types.
"""

from django.contrib.auth import get_user_model
from django.db import transaction

from helix_sessions.store import SessionStore
from project.sample import fortnight, invoices, research, reviews, stocktake, support
from project.sample.clock import Clock
from project.sample.story import TAG

__all__ = ["TAG", "is_loaded", "load"]

_STORIES = {
    "amina.support": (support.tell, fortnight.tell),
    "jonas.accounting": (invoices.tell,),
    "lea.strategy": (research.tell,),
    "mateo.engineering": (reviews.tell, stocktake.tell),
}


def is_loaded(store: SessionStore) -> bool:
    """Whether any of it is there."""
    return bool(store.list_sessions(tag=TAG, limit=1).items)


def load(store: SessionStore) -> None:
    """Tell all of it, or nothing: in one transaction, which the store's calls join."""
    users = get_user_model().objects
    with transaction.atomic(using=store.using):
        for username, stories in _STORIES.items():
            owner = users.filter(username=username).first() or users.create_user(username=username)
            for tell in stories:
                with Clock() as clock:
                    tell(store, owner, clock)
