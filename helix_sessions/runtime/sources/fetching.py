"""The text at an address, bounded in time and size."""

import time
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse, IncompleteRead
from urllib.parse import urljoin, urlsplit

from helix_sessions import egress
from helix_sessions.egress import checked_url

_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 3
_SENT = {"Accept": "text/*, */*;q=0.5", "Accept-Encoding": "identity", "User-Agent": egress.USER_AGENT}


def fetch_text(
    url: str,
    *,
    timeout: float,
    max_bytes: int,
    headers: Mapping[str, str] | None = None,
    allow_private: bool = False,
) -> str:
    """The text that a `GET` of the address is answered with; raises `OSError`, `HTTPException` or
    `InvalidInput`. Headers are sent to the host of the address only, not to another that it redirects to."""
    until = time.monotonic() + timeout
    first = urlsplit(checked_url(url))
    for _ in range(_MOST_REDIRECTS + 1):
        parts = urlsplit(checked_url(url))
        own = (parts.scheme, parts.netloc) == (first.scheme, first.netloc)
        sent = {**_SENT, **(headers or {} if own else {})}
        asked = egress.answered("GET", parts, until=until, allow_private=allow_private, headers=sent)
        with asked as response:
            if response.status in _REDIRECTS and response.headers.get("Location"):
                url = urljoin(url, response.headers["Location"])
                continue
            if response.status != 200:
                raise HTTPException(f"The address is answered with {response.status}.")
            return _text(response, until, max_bytes)
    raise HTTPException("The address redirects too often.")


def _text(response: HTTPResponse, until: float, max_bytes: int) -> str:
    content = egress.read(response, until, max_bytes + 1)
    if len(content) <= max_bytes and response.length:
        raise IncompleteRead(content, response.length)
    try:
        text = content[:max_bytes].decode(response.headers.get_content_charset() or "utf-8", "replace")
    except LookupError:
        text = content[:max_bytes].decode("utf-8", "replace")
    return text if len(content) <= max_bytes else f"{text}\n[The text is longer.]"
