"""Texts that lie in files beside the work: `AGENTS.md` in a directory and in those above it, or a glob."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from helix_sessions.exceptions import InvalidInput
from helix_sessions.runtime.sources.confined import read_inside
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
                if (text := read_inside(root, path, self.max_bytes)) is not None
            ]
        except OSError as error:
            _log.warning("The files of the context source %r cannot be read: %s", self.key, error)
            return UNAVAILABLE

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


class GlobFiles:
    """The files inside `root` that a pattern of `Path.glob` matches, in the order of their paths.

    Nothing outside the root is read. Of a file longer than `max_bytes` the rest is left out, and after
    `max_files` files or `max_total_bytes` the others are only counted. A root or a file that cannot be read
    makes the source unavailable.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        pattern: str,
        *,
        key: str | None = None,
        max_bytes: int = 64 * 1024,
        max_files: int = 50,
        max_total_bytes: int = 256 * 1024,
    ) -> None:
        parts = PurePath(pattern).parts
        if not parts or ".." in parts or PurePath(pattern).is_absolute():
            raise InvalidInput(f"{pattern!r:.200} is no pattern of files inside a directory.")
        self.root = Path(root)
        self.pattern = pattern
        self.key = pattern if key is None else key
        self.max_bytes = max_bytes
        self.max_files = max_files
        self.max_total_bytes = max_total_bytes

    def observe(self, session: SessionState) -> JSON | Unavailable:
        try:
            root = self.root.resolve(strict=True)
            paths = sorted(path for path in root.glob(self.pattern) if path.is_file())
            files: list[dict[str, str]] = []
            room = self.max_total_bytes
            for path in paths[: self.max_files]:
                text = read_inside(root, path, min(self.max_bytes, max(room, 0)))
                if text is not None and room > 0:
                    files.append({"path": str(path.relative_to(root)), "text": text})
                    room -= len(text.encode())
        except OSError as error:
            _log.warning("The files of the context source %r cannot be read: %s", self.key, error)
            return UNAVAILABLE
        return {"files": files, "left_out": len(paths) - len(files)}

    def baseline(self, value: JSON) -> str:
        texts = [f"File {file['path']}:\n\n{file['text']}" for file in value["files"]]
        if value["left_out"]:
            texts.append(f"{value['left_out']} more files are left out.")
        return "\n\n".join(texts)

    def update(self, old: JSON, new: JSON) -> str:
        """Only the files that changed."""
        before = {file["path"]: file["text"] for file in old["files"]}
        now = {file["path"]: file["text"] for file in new["files"]}
        texts = [f"File {path} is now:\n\n{text}" for path, text in now.items() if before.get(path) != text]
        texts += [f"File {path} is gone." for path in before if path not in now]
        if new["left_out"] != old["left_out"]:
            texts.append(f"{new['left_out']} more files are left out.")
        return "\n\n".join(texts)

    def removed(self, old: JSON) -> str:
        return f"The files {self.pattern} no longer apply." if self.baseline(old) else ""


def _candidates(root: Path, start: Any, names: Sequence[str]) -> Iterator[Path]:
    """The places to look at, the root's first."""
    here = (root / str(start)).resolve()
    if not here.is_relative_to(root):
        raise InvalidInput(f"{str(start)!r:.200} is outside of the root that instructions are read from.")
    inside = here.relative_to(root).parts
    for depth in range(len(inside) + 1):
        directory = root.joinpath(*inside[:depth])
        yield from (directory / name for name in names)
