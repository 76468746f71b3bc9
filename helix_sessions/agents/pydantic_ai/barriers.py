"""Calls of a response run side by side, except for tools that are `sequential`: these run alone, after the
calls before them and before the calls after them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class Barriers:
    """The calls of one session that run, in their order. All of them are on one event loop."""

    def __init__(self) -> None:
        self._open: dict[Place, bool | None] = {}
        """Whether each runs alone; `None`: that is not known yet."""
        self._changed = asyncio.Event()

    async def wait(self, place: "Place", *, alone: bool) -> None:
        self._set(place, alone)
        while not self._may_begin(place, alone):
            self._changed.clear()
            await self._changed.wait()

    def begin(self, place: "Place") -> None:
        self._open[place] = None

    def end(self, place: "Place") -> None:
        del self._open[place]
        self._changed.set()

    def _set(self, place: "Place", alone: bool) -> None:
        self._open[place] = alone
        self._changed.set()

    def _may_begin(self, place: "Place", alone: bool) -> bool:
        for other, is_alone in self._open.items():
            if other is place:
                return True
            if alone or is_alone is not False:
                return False
        return True


class Place:
    """The place of one call among them."""

    def __init__(self, barriers: Barriers) -> None:
        self._barriers = barriers

    async def wait(self, *, alone: bool) -> None:
        """Until the call may run."""
        await self._barriers.wait(self, alone=alone)


_BARRIERS: WeakValueDictionary[tuple[int, str], Barriers] = WeakValueDictionary()


@asynccontextmanager
async def place_of(session_id: str) -> AsyncIterator[Place]:
    """The place of a call that begins now: after those that have begun."""
    key = id(asyncio.get_running_loop()), session_id
    barriers = _BARRIERS.setdefault(key, Barriers())
    place = Place(barriers)
    barriers.begin(place)
    try:
        yield place
    finally:
        barriers.end(place)
