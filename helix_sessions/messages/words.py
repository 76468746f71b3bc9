"""The words of texts, the same on every database: folded here, so that no server's locale decides.

Letters lose their case and their accents. A language that is written without spaces has a word in each of its
characters, so that a part of a sentence is found too.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

MAX_CHARACTERS = 100_000
"""So much of the texts of a document is indexed: a `tsvector` has a largest size."""

MAX_OF_MESSAGE = 20_000
"""So many characters of the texts of a message are indexed."""

_ENCODED = 1_000
"""A text without a space in so many characters is encoded data, and has no words."""

MAX_WORD = 200
"""A longer word is found by its beginning, and with every other word that begins so."""

_ASCII_WORD = re.compile("[a-z0-9]+")
_ACCENTS = re.compile("[\u0300-\u036f]+")
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Thai and Lao, Burmese, Khmer, Japanese, Chinese."""
_LAST_MARK = 0x20000
"""Behind it are only selectors of variants."""


def words_of(text: str) -> list[str]:
    """The words of a text in their order."""
    if text.isascii():
        return [word[:MAX_WORD] for word in _ASCII_WORD.findall(text[:MAX_CHARACTERS].lower())]
    decomposed = unicodedata.normalize("NFKD", text[:MAX_CHARACTERS]).casefold()
    folded = unicodedata.normalize("NFKC", _ACCENTS.sub("", decomposed))
    return [word[:MAX_WORD] for word in _words().findall(folded)]


def searchable(texts: Iterable[str]) -> str:
    """What is indexed of texts: their words with a space in between."""
    return " ".join(words_of("\n".join(texts)))


def texts_in(value: Any) -> Iterator[str]:
    """Every string of a document, at any depth, in its order; keys are none."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting.extend(reversed(list(item.values())))
        elif isinstance(item, list | tuple):
            waiting.extend(reversed(item))


def words_of_message(message: Any, is_secret: Callable[[str], bool]) -> str:
    """What is indexed of a message: what was said, the names of called tools, arguments and results; without
    ids, and without what is under the key of a secret."""
    if not isinstance(message, Mapping):
        return ""
    calls = message.get("tool_calls")
    parts: list[Any] = [message.get("content"), message.get("tool_name")]
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, Mapping):
            inner = call.get("function")
            call = inner if isinstance(inner, Mapping) else call
            parts += [call.get("name"), call.get("arguments")]
    found, room = [], MAX_OF_MESSAGE
    for text in texts_in(_open(parts, is_secret)):
        if room <= 0:
            break
        if len(text) <= _ENCODED or " " in text[:_ENCODED]:
            found.append(text[:room])
            room -= len(text)
    return searchable(found)


def _open(value: Any, is_secret: Callable[[str], bool]) -> Any:
    """The document without the values of secrets."""
    if isinstance(value, Mapping):
        return {key: _open(item, is_secret) for key, item in value.items() if not is_secret(str(key))}
    if isinstance(value, list | tuple):
        return [_open(item, is_secret) for item in value]
    return value


def score(wanted: list[str], found: str) -> float | None:
    """How well indexed words fit a query: how often they have its words, for their number. `None` if one is
    missing. Only for words that the database cannot see."""
    every = found.split(" ")
    counts = [every.count(word) for word in set(wanted)]
    return sum(counts) / len(every) ** 0.5 if counts and all(counts) else None


@cache
def _words() -> re.Pattern[str]:
    marks = _class(code for code in range(_LAST_MARK) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
    return re.compile(f"[{_UNSPACED}][{marks}]*|(?:[^\\W_{_UNSPACED}]+[{marks}]*)+")


def _class(codes: Iterable[int]) -> str:
    """Characters for a class of a pattern, those in a row as a range."""
    rows: list[list[int]] = []
    for code in codes:
        if rows and rows[-1][1] == code - 1:
            rows[-1][1] = code
        else:
            rows.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in rows)
