"""A storage as object stores have it, and a server for it: keys instead of folders, whole objects, no
renaming, times in seconds, addresses that are signed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, Any
from urllib.parse import quote, unquote, urlsplit

from django.core.files.base import ContentFile, File
from django.core.files.storage import Storage
from django.utils.deconstruct import deconstructible


class Server(ThreadingHTTPServer):
    """The objects of one bucket, by key."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.failing = False
        """Whether every request fails, as on a bad day."""


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if not self._fails():
            self.server.objects[self._key] = data, datetime.now(UTC)
            self._answer(200)

    def do_GET(self) -> None:
        if self._fails():
            return
        if self._key.endswith("/"):
            names = sorted(key for key in self.server.objects if key.startswith(self._key))
            self._answer(200, "\n".join(names).encode())
        elif self._key in self.server.objects:
            data, written = self.server.objects[self._key]
            self._answer(200, data, **{"Last-Modified": format_datetime(written, usegmt=True)})
        else:
            self._answer(404)

    do_HEAD = do_GET  # noqa: N815 - the name that the base class looks for

    def do_DELETE(self) -> None:
        if not self._fails():
            self.server.objects.pop(self._key, None)
            self._answer(204)

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path[1:])

    def _fails(self) -> bool:
        if self.server.failing:
            self._answer(503)
        return self.server.failing

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextmanager
def object_server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@deconstructible
class ObjectStorage(Storage):
    """A Django storage on such a server. Like those of object stores it gives every name away again: two
    writers of one key both succeed, and the later one stays."""

    def __init__(self, port: int) -> None:
        self._port = port

    def _open(self, name: str, mode: str = "rb") -> "File[bytes]":
        _, body, _ = self._ask("GET", name)
        return ContentFile(body, name)

    def _save(self, name: str, content: IO[Any]) -> str:
        self._ask("PUT", name, content.read())
        return name

    def get_available_name(self, name: str, max_length: int | None = None) -> str:
        return name

    def delete(self, name: str) -> None:
        self._ask("DELETE", name)

    def exists(self, name: str) -> bool:
        try:
            self._ask("HEAD", name)
        except FileNotFoundError:
            return False
        return True

    def listdir(self, path: str) -> tuple[list[str], list[str]]:
        _, body, _ = self._ask("GET", f"{path}/")
        rest = [key.removeprefix(f"{path}/") for key in body.decode().splitlines()]
        return sorted({each.partition("/")[0] for each in rest if "/" in each}), [
            each for each in rest if "/" not in each
        ]

    def get_modified_time(self, name: str) -> datetime:
        _, _, headers = self._ask("HEAD", name)
        return parsedate_to_datetime(headers["Last-Modified"])

    def url(self, name: str | None) -> str:
        return f"http://127.0.0.1:{self._port}/{quote(name or '')}?X-Signature=of-the-store&X-Expires=300"

    def _ask(self, method: str, name: str, body: bytes | None = None) -> tuple[int, bytes, Any]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request(method, f"/{quote(name)}", body=body)
            answer: HTTPResponse = connection.getresponse()
            read = answer.read()
        finally:
            connection.close()
        if answer.status == 404:
            raise FileNotFoundError(name)
        if answer.status >= 400:
            raise OSError(f"The object store answered {answer.status}.")
        return answer.status, read, answer.headers
