"""What several sessions share: the custom state of a session of its own, written with one of theirs."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.state import states
from helix_sessions.types import JSON

T = TypeVar("T")


def share(store: Store, call: Callable[[], T], shared: Mapping[str, Mapping[str, JSON]]) -> T:
    """Make a call that writes to one session, and set top-level keys of the custom states of others: all is
    committed, or nothing.

    The others, which have to exist, are locked after the session of the call and always in one order, so that
    two such calls never wait for each other in a circle. A name comes before its beginning: what few share
    before what many do.
    """
    if not any(shared.values()):
        return call()
    with locking_transaction(store.using):
        outcome = call()
        for key in sorted(shared, reverse=True):
            writes = [{"op": "set", "path": [name], "value": value} for name, value in shared[key].items()]
            states.merge_custom_state(store, key, writes)
    return outcome
