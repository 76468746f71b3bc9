"""A text at an address."""

import logging
import threading
import time
from collections.abc import Mapping
from http.client import HTTPException

from helix_sessions.egress import checked_url
from helix_sessions.exceptions import InvalidInput
from helix_sessions.runtime.sources.fetching import fetch_text
from helix_sessions.runtime.sources.texts import TextSource
from helix_sessions.types import JSON, UNAVAILABLE, SessionState, Unavailable

_log = logging.getLogger("helix_sessions.context")

_RETRY_SECONDS = 5.0
"""After a failure the address is left alone for so long, so that a server that is down does not cost every
turn the time-out."""


class UrlText(TextSource):
    """The text at an `http` or `https` address. When it cannot be had, the model keeps what it was told.

    `timeout` bounds the whole request, in seconds; what was read is used again for `max_age` seconds. Of a
    longer text than `max_bytes` the rest is left out. Addresses of a private network and of this machine are
    refused, also behind a redirect, unless `allow_private` is set.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = 5.0,
        max_age: float = 60.0,
        max_bytes: int = 64 * 1024,
        headers: Mapping[str, str] | None = None,
        allow_private: bool = False,
    ) -> None:
        super().__init__(url if key is None else key)
        if not 0 < timeout <= 60:
            raise InvalidInput("The time-out of a source is between 0 and 60 seconds.")
        self.url = checked_url(url)
        self.timeout = timeout
        self.max_age = max_age
        self.max_bytes = max_bytes
        self.headers = dict(headers or {})
        self.allow_private = allow_private
        self._lock = threading.Lock()
        self._known: tuple[float, str | Unavailable] | None = None

    def observe(self, session: SessionState) -> JSON | Unavailable:
        with self._lock:
            now = time.monotonic()
            if self._known is None or now >= self._known[0]:
                text = self._fetch()
                age = min(self.max_age, _RETRY_SECONDS) if isinstance(text, Unavailable) else self.max_age
                self._known = (time.monotonic() + age, text)
            return self._known[1]

    def _fetch(self) -> str | Unavailable:
        try:
            return fetch_text(
                self.url,
                timeout=self.timeout,
                max_bytes=self.max_bytes,
                headers=self.headers,
                allow_private=self.allow_private,
            )
        except (OSError, HTTPException, ValueError, InvalidInput) as error:
            _log.warning("The context source %r cannot be read: %s", self.key, type(error).__name__)
            return UNAVAILABLE
