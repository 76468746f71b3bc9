"""The store for async code: the same calls, each run in Django's thread for synchronous work."""

import inspect
from collections.abc import Awaitable, Callable, Generator
from functools import partial, wraps
from typing import Any, Literal, overload

from asgiref.sync import sync_to_async
from django.db import DEFAULT_DB_ALIAS

from helix_sessions.store import inputs
from helix_sessions.store.session_store import SessionStore
from helix_sessions.store.subscriptions import event_or_fragment
from helix_sessions.stream.feeds import AsyncTail
from helix_sessions.types import UNSET, EventRecord, Fragment, Lease


class AsyncSessionStore:
    """`SessionStore` with awaitable calls. One implementation: each call is the store's own."""

    def __init__(self, using: str = DEFAULT_DB_ALIAS, *, owned_by: Any = UNSET) -> None:
        self._store = SessionStore(using, owned_by=owned_by)

    @property
    def using(self) -> str:
        return self._store.using

    @overload
    def subscribe(
        self, session_id: str, *, after: int | None = None, fragments: Literal[False] = False
    ) -> AsyncTail[EventRecord]: ...

    @overload
    def subscribe(
        self, session_id: str, *, after: int | None = None, fragments: bool
    ) -> AsyncTail[EventRecord | Fragment]: ...

    def subscribe(
        self, session_id: str, *, after: int | None = None, fragments: bool = False
    ) -> AsyncTail[Any]:
        log = self._store._log(session_id)
        return AsyncTail(
            log,
            partial(event_or_fragment, log.key[1]),
            after=inputs.optional_integer(after, "after"),
            fragments=fragments,
        )

    subscribe.__doc__ = SessionStore.subscribe.__doc__

    def fenced(self, lease: Lease) -> "AsyncFencedStore":
        store = AsyncFencedStore(self.using)
        store._store = self._store.fenced(lease)
        return store

    fenced.__doc__ = SessionStore.fenced.__doc__


class AsyncFencedStore(AsyncSessionStore):
    """The store of a lease's holder. Making one touches no database; it may be awaited like any call."""

    def __await__(self) -> Generator[None, None, "AsyncFencedStore"]:
        yield from ()
        return self


def _awaitable(method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def call(self: AsyncSessionStore, *args: Any, **kwargs: Any) -> Any:
        return await sync_to_async(method)(self._store, *args, **kwargs)

    return call


for _name, _member in inspect.getmembers_static(SessionStore):
    if _name.startswith("_") or _name in vars(AsyncSessionStore):
        continue
    setattr(AsyncSessionStore, _name, _member if isinstance(_member, staticmethod) else _awaitable(_member))
