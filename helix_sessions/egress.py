"""Requests to addresses that a project or an operator named: bounded in time, and confined to the public
network.

The address is resolved once, and the connection goes to exactly what was checked, so that a name cannot point
elsewhere between the check and the request. Proxies of the environment are not used, and redirects are left
to the caller.
"""

import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import SplitResult, urlsplit

from helix_sessions.exceptions import InvalidInput

USER_AGENT = "helix_sessions"
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_CHUNK = 16 * 1024


def checked_url(url: str) -> str:
    """The address, if it is one of `http` or `https` and holds no password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except (ValueError, TypeError, AttributeError):
        raise InvalidInput(f"{url!r:.200} is no address.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput("An address begins with http:// or https:// and names a host.")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("An address holds no user and no password; send a header instead.")
    if not url.isascii() or any(character <= " " for character in url):
        raise InvalidInput("An address has no blanks and only ASCII characters.")
    return url


def refuse_private_name(host: str) -> None:
    """Refuse a host that is private by its name alone, without asking a name server."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost") or _is_private_literal(name):
        raise _private(host)


def _is_private_literal(name: str) -> bool:
    with suppress(OSError):  # 127.1, 0x7f.1 and 2130706433 are addresses too
        return is_private(socket.inet_ntoa(socket.inet_aton(name)))
    with suppress(ValueError):
        return is_private(name)
    return False


@contextmanager
def answered(
    method: str,
    parts: SplitResult,
    *,
    until: float,
    allow_private: bool,
    headers: Mapping[str, str],
    body: bytes | None = None,
) -> Iterator[HTTPResponse]:
    """The answer to a request, of which the status and the headers have been read. At the time `until`, of
    `time.monotonic`, the connection is cut, even if the server still sends."""
    connection = _connect(parts, until, allow_private)
    timer = threading.Timer(left(until), _shut, [connection.sock])
    timer.daemon = True
    timer.start()
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, body=body, headers=dict(headers))
        yield connection.getresponse()
    finally:
        timer.cancel()
        connection.close()


def read(response: HTTPResponse, until: float, limit: int) -> bytes:
    """The body up to the limit; raises `TimeoutError` when the time is over."""
    content = b""
    while len(content) < limit:
        chunk = response.read1(min(_CHUNK, limit - len(content)))
        if not chunk:
            break
        content += chunk
    _ = left(until)  # what was cut off by the clock is not the body
    return content


def left(until: float) -> float:
    """The seconds until then; raises `TimeoutError` when there are none."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("The time for the request is over.")
    return seconds


def is_private(address: str) -> bool:
    """Whether an IP address is none of the public network."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF)
        if inner is not None:
            return not inner.is_global or inner.is_multicast
    return not found.is_global or found.is_multicast


def _connect(parts: SplitResult, until: float, allow_private: bool) -> HTTPConnection:
    host = str(parts.hostname)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if not allow_private and any(is_private(str(place[0])) for *_, place in addresses):
        raise _private(host)
    connection = HTTPConnection(host, port, timeout=left(until))
    raw = _socket(addresses, until)
    try:
        if parts.scheme == "https":
            raw = ssl.create_default_context().wrap_socket(raw, server_hostname=host)
    except OSError:
        raw.close()
        raise
    connection.sock = raw
    return connection


def _socket(addresses: Sequence[tuple[Any, ...]], until: float) -> socket.socket:
    error: OSError = OSError("The host has no address.")
    for family, kind, protocol, _, place in addresses:
        found = socket.socket(family, kind, protocol)
        try:
            found.settimeout(left(until))
            found.connect(place)
        except OSError as failure:
            found.close()
            error = failure
        else:
            return found
    raise error


def _shut(connected: socket.socket) -> None:
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def _private(host: str) -> InvalidInput:
    return InvalidInput(f"{host!r:.200} is an address of a private network.")
