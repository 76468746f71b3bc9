"""Attachments: binary content of a document, kept once by its digest in a storage, outside of the database.

A document whose base64 was taken out begins with a newline, as no other does, and has a reference in the
place of each: `\\/` (an escape that this package never writes), how the base64 was written, the name of the
file and the digest. Putting the base64 back gives the text as it was, byte for byte.
"""

import re
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import sha256
from io import BytesIO
from threading import Lock
from typing import NamedTuple

from django.core.files.base import ContentFile
from django.core.files.storage import Storage

from helix_sessions.conf import conf
from helix_sessions.content import encryption
from helix_sessions.content.storages import storage_named
from helix_sessions.exceptions import ContentUnreadable, NotConfigured

MARK = "\n"
"""The first character of a document with references."""

FOLDER = "helix_sessions/blobs"
OCTETS = "application/octet-stream"

_REFERENCE = re.compile(r'(?<=[",])\\/([stuv])([0-9a-f]{12})\.([0-9a-f]{64})(?=\\*")')
_CACHED_BYTES = 32 * 1024 * 1024


class InlineBlob(NamedTuple):
    """Base64 in the text of a document."""

    start: int
    end: int
    form: str
    sha256: str
    data: bytes
    media_type: str


def is_on() -> bool:
    """Whether there is a storage for blobs."""
    return bool(conf.BLOB_STORAGE)


def storage() -> Storage:
    """The storage of the settings."""
    if not conf.BLOB_STORAGE:
        raise NotConfigured("HELIX_SESSIONS['BLOB_STORAGE'] names no storage for attachments.")
    return storage_named(conf.BLOB_STORAGE)


def shortest() -> int | None:
    """How many characters a text has at least before base64 is looked for in it; `None` while it is off."""
    return 4 * (conf.BLOB_THRESHOLD // 3) if conf.BLOB_STORAGE else None


def inline_in(text: str) -> list[InlineBlob]:
    """The base64 in a document's text that decodes to more than the threshold, and re-encodes identically."""
    if _REFERENCE.search(text):
        return []  # written elsewhere, with an escape that looks like ours
    return [found for match in _pattern(shortest() or 0).finditer(text) if (found := _inline(text, match))]


def taken_out(text: str, found: list[InlineBlob], name_of: Callable[[str], str]) -> str:
    """The text with references; `name_of` tells the name of a digest's file."""
    parts, last = [MARK], 0
    for each in found:
        parts += [text[last : each.start], f"\\/{each.form}{name_of(each.sha256)}.{each.sha256}"]
        last = each.end
    return "".join([*parts, text[last:]])


def whole(text: str) -> str:
    """The text as it was before something was taken out."""
    return _REFERENCE.sub(lambda match: _encoded(*match.groups()), text[1:]) if text[:1] == MARK else text


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def write(sha: str, name: str, data: bytes) -> None:
    """Keep content as a file of its own."""
    ring = encryption.keyring()
    if ring is not None and ring.active is not None:
        path, data = _path(sha, name, ring.active), ring.seal_bytes(_place(sha, name), data)
    else:
        path = _path(sha, name, "")
    given = storage().save(path, ContentFile(data))
    if given != path:
        storage().delete(given)
        raise NotConfigured(f"The storage of attachments renamed {path!r}; it must keep names.")


def read(sha: str, name: str) -> bytes:
    """The content of a file. Raises `ContentUnreadable` where it is missing, damaged or of an unknown key."""
    for path, sealed in _places(sha, name):
        try:
            with storage().open(path, "rb") as file:
                data: bytes = file.read()
        except FileNotFoundError:
            continue
        if sealed:
            ring = encryption.keyring()
            assert ring is not None  # noqa: S101 - it named the place
            data = ring.open_bytes(sealed, _place(sha, name), data)
        if digest(data) != sha:
            raise ContentUnreadable(
                f"The attachment {sha} was changed or damaged outside of the application."
            )
        return data
    raise ContentUnreadable(
        f"The attachment {sha} is missing from its storage, or encrypted with a lost key."
    )


def delete(sha: str, name: str) -> None:
    """Delete a file, whichever key encrypts it. A missing one is no error."""
    for path, _ in _places(sha, name):
        storage().delete(path)


def is_current(sha: str, name: str) -> bool:
    """Whether a file is encrypted as new ones are."""
    ring = encryption.keyring()
    return storage().exists(_path(sha, name, (ring.active or "") if ring else ""))


def encrypt_again(sha: str, name: str) -> None:
    """Write a file as new ones are, then delete the one before."""
    data = read(sha, name)
    write(sha, name, data)
    ring = encryption.keyring()
    for path, sealed in _places(sha, name):
        if sealed != ((ring and ring.active) or ""):
            storage().delete(path)


def files() -> Iterator[tuple[str, str, str]]:
    """Every file of the storage: its path, its digest, its name."""
    try:
        folders, _ = storage().listdir(FOLDER)
    except FileNotFoundError:
        return
    for folder in folders:
        for file in storage().listdir(f"{FOLDER}/{folder}")[1]:
            sha, _, rest = file.partition(".")
            yield f"{FOLDER}/{folder}/{file}", sha, rest.partition(".")[0]


@lru_cache(maxsize=8)
def _pattern(shortest: int) -> "re.Pattern[str]":
    return re.compile(
        rf'(?:(?<=")|(?<=;base64,))[A-Za-z0-9+/_-]{{{max(shortest, 4)},}}+={{0,2}}+(?=\\*")', re.ASCII
    )


def _inline(text: str, match: "re.Match[str]") -> InlineBlob | None:
    written = match.group()
    for form in "uv" if "-" in written or "_" in written else "st":
        try:
            data = _DECODE[form](written)
        except ValueError:
            continue
        if len(data) > conf.BLOB_THRESHOLD and _ENCODE[form](data) == written:
            return InlineBlob(*match.span(), form, digest(data), data, _media_type(text, match.start()))
    return None


def _media_type(text: str, start: int) -> str:
    found = re.search(r"data:([\w.+-]{1,100}/[\w.+-]{1,100});base64,$", text[max(0, start - 220) : start])
    return found.group(1) if found else OCTETS


def _padded(written: str) -> str:
    return written + "=" * (-len(written) % 4)


_DECODE: dict[str, Callable[[str], bytes]] = {
    "s": lambda text: b64decode(text, validate=True),
    "t": lambda text: b64decode(_padded(text), validate=True),
    "u": urlsafe_b64decode,
    "v": lambda text: urlsafe_b64decode(_padded(text)),
}
_ENCODE: dict[str, Callable[[bytes], str]] = {
    "s": lambda data: b64encode(data).decode(),
    "t": lambda data: b64encode(data).decode().rstrip("="),
    "u": lambda data: urlsafe_b64encode(data).decode(),
    "v": lambda data: urlsafe_b64encode(data).decode().rstrip("="),
}


def _path(sha: str, name: str, key_id: str) -> str:
    return f"{FOLDER}/{sha[:2]}/{sha}.{name}{f'.{key_id}' if key_id else ''}"


def _places(sha: str, name: str) -> list[tuple[str, str]]:
    """Where a file may be, and by which key it is encrypted then; where new ones are comes first."""
    ring = encryption.keyring()
    keys = [] if ring is None else sorted(ring.keys, key=lambda key_id: key_id != ring.active)
    known = [*keys, ""] if ring is not None and ring.active else ["", *keys]
    return [(_path(sha, name, key_id), key_id) for key_id in known]


def _place(sha: str, name: str) -> encryption.Place:
    return ("blob", "content", sha, name)


class _Cache:
    """Contents that were read last, so that a context with pictures is not fetched anew for every turn."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, str], bytes] = OrderedDict()
        self._size = 0
        self._lock = Lock()

    def get(self, sha: str, name: str) -> bytes:
        key = (conf.BLOB_STORAGE, sha, name)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        data = read(sha, name)
        with self._lock:
            if key not in self._kept and len(data) <= _CACHED_BYTES // 4:
                self._kept[key] = data
                self._size += len(data)
            while self._size > _CACHED_BYTES:
                self._size -= len(self._kept.popitem(last=False)[1])
        return data

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._size = 0


cache = _Cache()


def _encoded(form: str, name: str, sha: str) -> str:
    return _ENCODE[form](cache.get(sha, name))


def opened(sha: str, name: str) -> BytesIO:
    """A content as a file in memory."""
    return BytesIO(read(sha, name))
