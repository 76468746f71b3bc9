"""A database that is away or cannot, told by every call of the store in the same words."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from django.db import DatabaseError, connections

from helix_sessions.store.database import let_go_if_broken, outage

T = TypeVar("T", bound=type)


def told(store: T) -> T:
    """Let each call of a store say `StoreUnavailable` or `SessionBusy` where the driver has other words, and
    leave no broken connection to the next call.

    Writes have done so already, as far as it is known what became of them. What is left are reads, and
    commits that nobody answered; these stay what they are.
    """
    for name, call in inspect.getmembers_static(store, inspect.isfunction):
        if not name.startswith("_"):
            setattr(store, name, _telling(call))
    return store


def _telling(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def telling(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return call(self, *args, **kwargs)
        except DatabaseError as error:
            let_go_if_broken(connections[self.using])
            known = outage(error)
            if known is None:
                raise
            raise known from error

    return telling
