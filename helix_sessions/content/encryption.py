"""Encryption of content at rest: a document's text to what the database stores, and back.

Optional, and off unless `HELIX_SESSIONS["ENCRYPTION"]` names keys. Content is sealed (encrypted and
authenticated) with AES-256-GCM. Every session has a key of its own, derived from the installation's key, so
that random nonces do not repeat. The place of a text (table, column, primary key) is authenticated with it: a
row that was moved, swapped or changed outside of the application cannot be decrypted.

A sealed text is a JSON string after a space, ` "1.KEY_ID.BASE64"`. No document begins with a space, so plain
text from before encryption needs no flag, and both can be read.
"""

import hmac
import os
import re
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from django.utils.module_loading import import_string

from helix_sessions.conf import conf
from helix_sessions.exceptions import ContentUnreadable, NotConfigured

Place = tuple[Any, ...]
"""Where a text is: table, column, then the primary key's values, of which the first names the session."""

SEALED = " "
"""The prefix of a sealed text."""

VEILED = "~"
"""The prefix of a veiled digest; a digest is hexadecimal."""

_LAYOUT = "1"
_NONCE = 12
_KEY_BYTES = 32
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")


class Sealed(NamedTuple):
    """A text as the ORM reads it, not decrypted, because its place is not known yet."""

    text: str


class Keyring:
    """The installation's keys: every key decrypts, the active one encrypts."""

    def __init__(self, keys: Mapping[str, bytes], active: str | None) -> None:
        self.keys = dict(keys)
        self.active = active
        self._by_mark = {_mark(key_id): key for key_id, key in keys.items()}
        self.prefix = "" if active is None else f'{SEALED}"{_LAYOUT}.{active}.'
        """The prefix of a text that the active key encrypted."""
        self.veil_prefix = "" if active is None else f"{VEILED}{_mark(active)}"

    def is_current(self, text: str) -> bool:
        """Whether a text is encrypted with the active key."""
        return text.startswith(self.prefix) if self.prefix else not text.startswith(SEALED)

    def seal(self, place: Place, text: str) -> str:
        """The text as it is stored; without an active key, the plain text."""
        if self.active is None:
            return text
        nonce = os.urandom(_NONCE)
        cipher = _cipher(self.keys[self.active], str(place[2]))
        sealed = nonce + cipher.encrypt(nonce, text.encode(), _bytes(place))
        return f'{self.prefix}{urlsafe_b64encode(sealed).decode()}"'

    def open(self, place: Place, sealed: str) -> str:
        """The text that was sealed at this place."""
        from cryptography.exceptions import InvalidTag

        layout, key_id, data = _parts(sealed)
        key = self.keys.get(key_id) if layout == _LAYOUT else None
        if key is None:
            raise _missing(key_id)
        try:
            raw = urlsafe_b64decode(data)
            cipher = _cipher(key, str(place[2]))
            text: bytes = cipher.decrypt(raw[:_NONCE], raw[_NONCE:], _bytes(place))
            return text.decode()
        except (InvalidTag, ValueError):
            raise ContentUnreadable(
                f"The {place[1]} of a {place[0]} of {place[2]!r} is not what was stored there:"
                " it was changed, moved or damaged outside of the application.",
                key_id=key_id,
            ) from None

    def seal_bytes(self, place: Place, data: bytes) -> bytes:
        """Bytes as they are stored: sealed with the active key, which there has to be."""
        nonce = os.urandom(_NONCE)
        sealed: bytes = _cipher(self.keys[str(self.active)], str(place[2])).encrypt(
            nonce, data, _bytes(place)
        )
        return nonce + sealed

    def open_bytes(self, key_id: str, place: Place, sealed: bytes) -> bytes:
        """The bytes that were sealed at this place with this key."""
        from cryptography.exceptions import InvalidTag

        try:
            cipher = _cipher(self.keys[key_id], str(place[2]))
            data: bytes = cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], _bytes(place))
            return data
        except (InvalidTag, ValueError):
            raise ContentUnreadable(
                f"The {place[0]} {place[2]!r} is not what was stored: it was changed or damaged outside of"
                " the application.",
                key_id=key_id,
            ) from None

    def veil(self, scope: str, digest: str) -> str:
        """A digest that cannot be compared with guesses: one block of AES, reversible."""
        if self.active is None or not digest or digest.startswith(VEILED):
            return digest
        block = _block(self.keys[self.active], scope).encryptor().update(bytes.fromhex(digest))
        return f"{self.veil_prefix}{urlsafe_b64encode(block).decode().rstrip('=')}"

    def unveil(self, scope: str, veiled: str) -> str:
        """The digest; without its key, a text that no digest equals."""
        key = self._by_mark.get(veiled[1:7])
        if key is None:
            return veiled
        digest: bytes = _block(key, scope).decryptor().update(urlsafe_b64decode(f"{veiled[7:]}=="))
        return digest.hex()


_made: tuple[Any, Keyring | None] = ({}, None)


def keyring() -> Keyring | None:
    """The keys of the settings; `None` without encryption. Built once for each value of the setting."""
    global _made
    given = conf.ENCRYPTION
    if given is not _made[0]:
        _made = (given, _keyring(given) if given else None)
    return _made[1]


def open_text(place: Place, text: str) -> str:
    """The text of a column that may be sealed."""
    if not text.startswith(SEALED):
        return text
    ring = keyring()
    if ring is None:
        raise _missing(_parts(text)[1])
    return ring.open(place, text)


def seal_text(place: Place, text: str) -> str:
    """The text as it is stored."""
    ring = keyring()
    return text if ring is None else ring.seal(place, text)


def veil(scope: Any, digest: str) -> str:
    """A digest as it is stored."""
    ring = keyring()
    return digest if ring is None else ring.veil(str(scope), digest)


def unveil(scope: Any, stored: str) -> str:
    """A digest that may be veiled."""
    ring = keyring()
    return stored if ring is None or not stored.startswith(VEILED) else ring.unveil(str(scope), stored)


def _keyring(given: Mapping[str, Any]) -> Keyring:
    unknown = set(given) - {"keys", "active"}
    if unknown:
        raise NotConfigured(f"ENCRYPTION has an unknown key {min(map(str, unknown))!r}.")
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise NotConfigured(
            'ENCRYPTION needs a package. Install it with: pip install "django-helix-sessions[encryption]"'
        ) from None
    keys = given.get("keys")
    if isinstance(keys, str):
        try:
            keys = import_string(keys)()
        except ImportError as error:
            raise NotConfigured(f"ENCRYPTION['keys'] cannot be imported: {error}") from None
    if not isinstance(keys, Mapping) or not keys:
        raise NotConfigured("ENCRYPTION['keys'] must be a dict of keys by id, or the path of a function.")
    active = given.get("active")
    if active is not None and active not in keys:
        raise NotConfigured("ENCRYPTION['active'] must be the id of one of the keys, or None.")
    return Keyring({_key_id(key_id): _key(key_id, key) for key_id, key in keys.items()}, active)


def _key_id(value: Any) -> str:
    if not isinstance(value, str) or not _KEY_ID.fullmatch(value):
        raise NotConfigured("The id of an encryption key has 1 to 32 letters, digits, - or _.")
    return value


def _key(key_id: str, value: Any) -> bytes:
    """The bytes of a key; never part of a message."""
    try:
        key = value if isinstance(value, bytes) else b64decode(value.translate({45: "+", 95: "/"}))
    except (ValueError, AttributeError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise NotConfigured(f"The encryption key {key_id!r} is not 32 bytes in base64.")
    return key


@lru_cache(maxsize=4096)
def _cipher(key: bytes, scope: str) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(hmac.digest(key, b"helix_sessions content\0" + scope.encode(), "sha256"))


@lru_cache(maxsize=4096)
def _block(key: bytes, scope: str) -> Any:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    derived = hmac.digest(key, b"helix_sessions digest\0" + scope.encode(), "sha256")
    return Cipher(algorithms.AES(derived), modes.ECB())  # noqa: S305 - one block, of a digest


def _mark(key_id: str) -> str:
    return sha256(key_id.encode()).hexdigest()[:6]


def _bytes(place: Place) -> bytes:
    return "\0".join(map(str, place)).encode()


def _parts(sealed: str) -> tuple[str, str, str]:
    layout, _, rest = sealed[2:-1].partition(".")
    key_id, _, data = rest.partition(".")
    return layout, key_id, data


def _missing(key_id: str) -> ContentUnreadable:
    return ContentUnreadable(
        f"This content is encrypted with the key {key_id[:32]!r}, which is not configured.",
        key_id=key_id[:32],
    )
