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
ignore_startup_parameters = extra_float_digits,options
logfile = {log}
admin_users = {user}
"""


def find_pgbouncer() -> str | None:
    """Where it is, if it is."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def pgbouncer(server: str, pool_size: int = 3) -> Iterator[str]:
    """The address of a database, by way of a proxy with so few connections that every one is shared."""
    program = find_pgbouncer()
    assert program is not None, MISSING
    parts = urlsplit(server)
    identity = _unprivileged_identity()
    port = _free_port()
    user = unquote(parts.username or "postgres")
    with tempfile.TemporaryDirectory(prefix="helix_sessions_pgbouncer_") as directory:
        place = Path(directory)
        users, log = place / "users.txt", place / "log"
        users.write_text(f'"{user}" "{unquote(parts.password or "")}"\n')
        configuration = place / "pgbouncer.ini"
        configuration.write_text(
            _CONFIGURATION.format(
                host=parts.hostname or "127.0.0.1",
                server_port=parts.port or 5432,
                port=port,
                users=users,
                pool_size=pool_size,
                log=log,
                user=user,
            )
        )
        if identity:
            for path in (place, users, configuration):
                shutil.chown(path, identity["user"], identity["group"])
        process = subprocess.Popen(
            [program, "--quiet", str(configuration)], cwd=place, start_new_session=True, **identity
        )
        try:
            _wait_for(port, process, log)
            at = f"{parts.username}:{parts.password}@127.0.0.1:{port}"
            yield urlunsplit(parts._replace(netloc=at))
        finally:
            process.kill()
            process.wait()


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
