"""Instructions that lie in files beside the work: `AGENTS.md` in a directory and in those above it."""

import logging
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from helix_sessions.exceptions import InvalidInput
from helix_sessions.types import JSON, UNAVAILABLE, SessionState, Unavailable

_log = logging.getLogger("helix_sessions.context")


class FileInstructions:
    """The files of these names in a directory and in every one above it up to `root`, the root's first.

    `start` is that directory, relative to the root, or a function of the session that returns it. Nothing
    outside the root is read: a directory there is refused, and a link that leads there is passed over.
    Of a file longer than `max_bytes` the rest is left out. A root or a file that cannot be read makes the
    source unavailable; one that is not there is not.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        names: Sequence[str] = ("AGENTS.md",),
        *,
        start: str | Callable[[SessionState], str] = ".",
        key: str = "files",
        max_bytes: int = 64 * 1024,
    ) -> None:
        self.root = Path(root)
        self.names = (names,) if isinstance(names, str) else tuple(names)
        if any(os.path.basename(name) != name or name in ("", ".", "..") for name in self.names):
            raise InvalidInput("Instructions are found by the names of files, without directories.")
        self.start = start
        self.key = key
        self.max_bytes = max_bytes

    def observe(self, session: SessionState) -> JSON | Unavailable:
        start = self.start if isinstance(self.start, str) else self.start(session)
        try:
            root = self.root.resolve(strict=True)
            return [
                {"path": str(path.relative_to(root)), "text": text}
                for path in _candidates(root, start, self.names)
                if (text := self._read(root, path)) is not None
            ]
        except OSError as error:
            _log.warning("The files of the context source %r cannot be read: %s", self.key, error)
            return UNAVAILABLE

    def _read(self, root: Path, path: Path) -> str | None:
        """The text of a file inside the root; `None` if there is none."""
        try:
            real = path.resolve(strict=True)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not real.is_relative_to(root):
            _log.warning("%s leads outside of the root of the context source %r.", path, self.key)
            return None
        # The last part is no link any more; should it become one now, it is not followed.
        file = os.open(real, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            return None
        with os.fdopen(file, "rb") as opened:
            content = opened.read(self.max_bytes + 1)
        text = content[: self.max_bytes].decode(errors="replace")
        return text if len(content) <= self.max_bytes else f"{text}\n[The file is longer.]"

    def baseline(self, value: JSON) -> str:
        return "\n\n".join(f"Instructions from {file['path']}:\n\n{file['text']}" for file in value)

    def update(self, old: JSON, new: JSON) -> str:
        if not new:
            return self.removed(old)
        if not old:
            return self.baseline(new)
        return f"These instructions replace all earlier ones from files.\n\n{self.baseline(new)}"

    def removed(self, old: JSON) -> str:
        return "The instructions from files no longer apply." if old else ""


def _candidates(root: Path, start: Any, names: Sequence[str]) -> Iterator[Path]:
    """The places to look at, the root's first."""
    here = (root / str(start)).resolve()
    if not here.is_relative_to(root):
        raise InvalidInput(f"{str(start)!r:.200} is outside of the root that instructions are read from.")
    inside = here.relative_to(root).parts
    for depth in range(len(inside) + 1):
        directory = root.joinpath(*inside[:depth])
        yield from (directory / name for name in names)
