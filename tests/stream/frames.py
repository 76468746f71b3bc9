"""Server-sent events as a browser reads them."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async


@dataclass(frozen=True)
class Frame:
    event: str
    data: Any
    id: str | None


class Parser:
    """Bytes in, frames out; `last_id` and `retry` as the specification has them."""

    def __init__(self) -> None:
        self.last_id: str | None = None
        self.retry: int | None = None
        self.comments = 0
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        return [frame for block in blocks if (frame := self._frame(block.decode())) is not None]

    def _frame(self, block: str) -> Frame | None:
        name, number, data = "message", None, []
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "":
                self.comments += 1
            elif field == "event":
                name = value
            elif field == "id":
                number = self.last_id = value
            elif field == "retry":
                self.retry = int(value)
            elif field == "data":
                data.append(value)
        return Frame(name, json.loads("\n".join(data)), number) if data else None


class Reading:
    """A streaming response of Django's async test client, frame by frame."""

    def __init__(self, response: Any) -> None:
        self.parser = Parser()
        self._response = response
        self._chunks: AsyncIterator[bytes] = aiter(response.streaming_content)
        self._ready: list[Frame] = []

    async def next(self) -> Frame:
        while not self._ready:
            self._ready = self.parser.feed(await anext(self._chunks))
        return self._ready.pop(0)

    async def take(self, count: int) -> list[Frame]:
        return [await self.next() for _ in range(count)]

    async def rest(self) -> list[Frame]:
        """Everything until the server ends it."""
        frames, self._ready = self._ready, []
        async for chunk in self._chunks:
            frames += self.parser.feed(chunk)
        return frames

    async def close(self) -> None:
        """Go away, as a browser does."""
        await self._chunks.aclose()  # type: ignore[attr-defined]
        await sync_to_async(self._response.close)()
        await asyncio.sleep(0)
