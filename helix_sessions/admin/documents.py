"""Documents for a page: secrets masked, large ones cut, never trusted."""

import json
from dataclasses import dataclass
from typing import Any

from helix_sessions.admin import humanize
from helix_sessions.content.documents import secret_keys

MASK = "••••••"
BRIEF = 160

CHARACTERS_SHOWN = 20_000
"""How many characters of a document a page shows; the whole is a download."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A document on a page."""

    value: Any
    """The masked value; of a cut document, its beginning."""
    text: str
    """The same as indented JSON."""
    size: str
    """The size of the whole document."""
    is_cut: bool

    @property
    def brief(self) -> str:
        """Its first words on one line."""
        text = self.value if isinstance(self.value, str) else json.dumps(self.value, ensure_ascii=False)
        text = " ".join(text[: 4 * BRIEF].split())
        return text if len(text) <= BRIEF else f"{text[:BRIEF]}…"


def shown(value: Any) -> Preview:
    """A document that is in memory."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return shown_beginning(written[:CHARACTERS_SHOWN], len(written))


def shown_beginning(text: str, size: int) -> Preview:
    """A document of which only the beginning was read."""
    is_cut = len(text) < size
    value = read_masked(completed(text) if is_cut else text)
    return Preview(value=value, text=pretty(value), size=humanize.size(size), is_cut=is_cut)


def pretty(value: Any) -> str:
    """Indented JSON."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def masked(value: Any) -> Any:
    """The document without the values of the keys in `MASKED_KEYS`."""
    return read_masked(json.dumps(value, ensure_ascii=False))


def read_masked(text: str) -> Any:
    """The value of a document without its secrets. They are masked while parsing, at any depth."""
    is_secret = secret_keys()

    def mask(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {key: MASK if value is not None and is_secret(key) else value for key, value in pairs}

    return json.loads(text, object_pairs_hook=mask)


def completed(beginning: str) -> str:
    """Valid JSON from the beginning of a JSON text: a cut string is ended, open brackets are closed, and what
    cannot be completed is dropped. So the beginning can be masked like any document."""
    scan = _Scan()
    for index, character in enumerate(beginning):
        scan.read(index, character)
    if scan.in_string and not scan.is_key:
        return _cut_string(beginning) + "".join(reversed(scan.closers))
    index, closers = scan.safe
    return (beginning[:index] or "null") + "".join(reversed(closers))


class _Scan:
    """Where in a JSON text a reader is."""

    def __init__(self) -> None:
        self.closers: list[str] = []
        self.in_string = False
        self.is_key = False
        self._escaped = False
        self._expects_key = False
        self.safe: tuple[int, tuple[str, ...]] = (0, ())
        """Up to where the text can be completed, and with what."""

    def read(self, index: int, character: str) -> None:
        if self.in_string:
            self._read_in_string(index, character)
        elif character == '"':
            self.in_string, self.is_key = True, self._expects_key
        elif character in "{[":
            self.closers.append("}" if character == "{" else "]")
            self._expects_key = character == "{"
            self._mark(index + 1)
        elif character in "}]":
            self.closers.pop()
            self._expects_key = False
            self._mark(index + 1)
        elif character == ",":
            self._mark(index)
            self._expects_key = self.closers[-1] == "}"
        elif character == ":":
            self._expects_key = False

    def _read_in_string(self, index: int, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self.in_string = False
            if not self.is_key:
                self._mark(index + 1)

    def _mark(self, index: int) -> None:
        self.safe = (index, tuple(self.closers))


def _cut_string(text: str) -> str:
    """End the string the text breaks off in, before an escape that is not whole."""
    tail = text[-6:]
    start = tail.rfind("\\u")
    if start >= 0 and len(tail) - start < 6:
        text = text[: len(text) - len(tail) + start]
    backslashes = len(text) - len(text.rstrip("\\"))
    if backslashes % 2:
        text = text[:-1]
    return f'{text}…"'
