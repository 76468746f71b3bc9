"""A private PgBouncer that pools by transaction, before a PostgreSQL server."""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import psycopg

from tests.postgres import _free_port, _unprivileged_identity

MISSING = "PgBouncer is not installed (on Debian and Ubuntu: apt install pgbouncer)"

_CONFIGURATION = """
[databases]
* = host={host} port={server_port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = plain
auth_file = {users}
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 500
server_idle_timeout = 1
server_login_retry = 0.1
ignore_startup_parameters = extra_float_digits,options
logfile = {log}
admin_users = {user}
"""


def find_pgbouncer() -> str | None:
    """Where it is, if it is."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


class Pooler:
    """A running PgBouncer. Its clients stay connected while it is led to another server."""

    def __init__(self, place: Path, server: str, pool_size: int) -> None:
        program = find_pgbouncer()
        assert program is not None, MISSING
        self.port = _free_port()
        self.log = place / "log"
        self._place, self._pool_size, self._server = place, pool_size, server
        self._identity = _unprivileged_identity()
        parts = urlsplit(server)
        self._user = unquote(parts.username or "postgres")
        self._write("users.txt", f'"{self._user}" "{unquote(parts.password or "")}"\n')
        configuration = self._configure(server)
        if self._identity:
            shutil.chown(place, self._identity["user"], self._identity["group"])
        self.process = subprocess.Popen(
            [program, "--quiet", configuration], cwd=place, start_new_session=True, **self._identity
        )

    @property
    def url(self) -> str:
        """The address of the server's database, by way of the proxy."""
        parts = urlsplit(self._server)
        at = f"{parts.username}:{parts.password}@127.0.0.1:{self.port}"
        return urlunsplit(parts._replace(netloc=at))

    def lead_to(self, server: str) -> None:
        """Open every connection from now on at another server, with the same users. It is there already."""
        self._configure(server)
        console = urlunsplit(urlsplit(self.url)._replace(path="/pgbouncer"))
        with psycopg.connect(console, autocommit=True) as connection:
            connection.execute("RELOAD")
        deadline = time.monotonic() + 20
        while not self._answers():
            assert time.monotonic() < deadline, f"PgBouncer has no server: {self.log.read_text()}"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _configure(self, server: str) -> Path:
        parts = urlsplit(server)
        return self._write(
            "pgbouncer.ini",
            _CONFIGURATION.format(
                host=parts.hostname or "127.0.0.1",
                server_port=parts.port or 5432,
                port=self.port,
                users=self._place / "users.txt",
                pool_size=self._pool_size,
                log=self.log,
                user=self._user,
            ),
        )

    def _write(self, name: str, text: str) -> Path:
        path = self._place / name
        path.write_text(text)
        if self._identity:
            shutil.chown(path, self._identity["user"], self._identity["group"])
        return path


@contextmanager
def pgbouncer(server: str, pool_size: int = 3) -> Iterator[Pooler]:
    """A proxy before a database, with so few connections that every one is shared."""
    with tempfile.TemporaryDirectory(prefix="helix_sessions_pgbouncer_") as directory:
        pooler = Pooler(Path(directory), server, pool_size)
        try:
            _wait_for(pooler.port, pooler.process, pooler.log)
            yield pooler
        finally:
            pooler.process.kill()
            pooler.process.wait()


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            said = log.read_text() if log.exists() else ""
            assert process.poll() is None, f"PgBouncer ended: {said}"
            assert time.monotonic() < deadline, f"PgBouncer does not answer: {said}"
            time.sleep(0.02)
