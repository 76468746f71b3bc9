"""The store for async code: the same calls, each run in Django's thread for synchronous work."""

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DEFAULT_DB_ALIAS

from helix_sessions.store.session_store import SessionStore
from helix_sessions.types import UNSET


class AsyncSessionStore:
    """`SessionStore` with awaitable calls. One implementation: each call is the store's own."""

    def __init__(self, using: str = DEFAULT_DB_ALIAS, *, owned_by: Any = UNSET) -> None:
        self._store = SessionStore(using, owned_by=owned_by)

    @property
    def using(self) -> str:
        return self._store.using


def _awaitable(method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def call(self: AsyncSessionStore, *args: Any, **kwargs: Any) -> Any:
        return await sync_to_async(method)(self._store, *args, **kwargs)

    return call


for _name, _member in inspect.getmembers_static(SessionStore):
    if _name.startswith("_") or _name in vars(AsyncSessionStore):
        continue
    setattr(AsyncSessionStore, _name, _member if isinstance(_member, staticmethod) else _awaitable(_member))
