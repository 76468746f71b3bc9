"""The demo project and the tests' own instruments."""

import os
import re
import stat
import tomllib
from pathlib import Path

import psycopg
import pytest
from django.contrib.auth import get_user_model
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.db import connection
from django.test import Client

from project.database import database_from_url
from project.secret_key import secret_key_from_file
from tests.parallel import Worker, run_processes, run_threads
from tests.postgres import find_binaries, private_server
from tests.rows import each

ROOT = Path(__file__).resolve().parent.parent


class TestDatabaseUrl:
    def test_postgresql(self):
        database = database_from_url("postgres://us%40er:p%2Fw%3A@db.example:6543/na%20me?sslmode=require")
        assert database == {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "na me",
            "USER": "us@er",
            "PASSWORD": "p/w:",
            "HOST": "db.example",
            "PORT": "6543",
            "OPTIONS": {"sslmode": "require"},
        }

    def test_socket_directory_in_the_query(self):
        database = database_from_url("postgresql:///helix?host=/run/postgresql&port=5433")
        assert (database["HOST"], database["PORT"], database["OPTIONS"]) == ("/run/postgresql", "5433", {})

    def test_socket_directory_in_the_host(self):
        assert database_from_url("postgresql://%2Frun%2FPostgres/helix")["HOST"] == "/run/Postgres"

    def test_ipv6(self):
        database = database_from_url("postgresql://[::1]:5432/helix")
        assert (database["HOST"], database["PORT"]) == ("::1", "5432")

    @each(("url", "name"), [("sqlite:///a.db", "a.db"), ("sqlite:////tmp/a%20b.db", "/tmp/a b.db")])
    def test_sqlite(self, url: str, name: str):
        database = database_from_url(url)
        assert database["NAME"] == name
        assert database["OPTIONS"]["transaction_mode"] == "IMMEDIATE"

    @each("url", ["", "postgresql://host", "mysql://host/name", "sqlite:///", "name"])
    def test_refused(self, url: str):
        with pytest.raises(ValueError, match="database"):
            database_from_url(url)


def test_secret_key_is_made_once_for_its_owner_only(tmp_path: Path):
    path = tmp_path / "var" / "secret_key"
    key = secret_key_from_file(path)
    assert len(key) >= 50
    assert secret_key_from_file(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.django_db
class TestEnsureAdmin:
    def test_makes_a_login_once(self, capsys: pytest.CaptureFixture[str]):
        call_command("ensure_admin")
        password = re.search(r"password: (\S+)", capsys.readouterr().out)
        assert password
        assert Client().login(username="admin", password=password[1])
        call_command("ensure_admin")
        assert "changepassword" in capsys.readouterr().out
        assert get_user_model().objects.filter(username="admin").count() == 1

    def test_password_from_the_environment_is_not_printed(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("HELIX_ADMIN_PASSWORD", "from-the-environment")
        call_command("ensure_admin")
        assert "from-the-environment" not in capsys.readouterr().out
        assert Client().login(username="admin", password="from-the-environment")


@pytest.mark.django_db
class TestPages:
    def test_home(self, client: Client):
        response = client.get("/")
        assert response.status_code == 200
        assert 'href="/admin/"' in response.content.decode()

    def test_every_link_of_home_leads_somewhere(self, admin_client: Client):
        links = re.findall(r'<a href="(/[^"]*)"', admin_client.get("/").content.decode())
        assert {link: admin_client.get(link).status_code for link in links} == dict.fromkeys(links, 200)

    @each("path", ["/", "/schema/redoc/"])
    def test_styles_are_files(self, client: Client, path: str):
        """As `Content-Security-Policy: default-src 'self'` wants them."""
        page = client.get(path).content.decode()
        [stylesheet] = re.findall(r'<link rel="stylesheet" href="/static/([^"]*)"', page)
        assert finders.find(stylesheet)
        assert "<style" not in page

    @each("name", ["../pyproject.toml", "absent.md", "/etc/passwd"])
    def test_only_documents_are_served(self, client: Client, name: str):
        assert client.get(f"/docs/{name}").status_code == 404


def test_requirements_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    declared = {*project["dependencies"], *(requirement for extra in extras for requirement in extra)}
    assert set((ROOT / "requirements.txt").read_text().split()) <= declared


def _user_from_a_process(index: int, *arguments: object) -> tuple[int, str, tuple[object, ...]]:
    get_user_model().objects.create(username=f"process {os.getpid()}")
    return index, str(connection.settings_dict["NAME"]), arguments


def _fail(index: int) -> None:
    print("noise on stdout")
    raise LookupError(index)


class _Unpicklable(Exception):
    def __init__(self, *, detail: str) -> None:
        super().__init__(f"about {detail}")


def _fail_unpicklable(index: int) -> None:
    raise _Unpicklable(detail=f"process {index}")


@pytest.mark.django_db(transaction=True)
class TestParallel:
    def test_threads_return_results_and_exceptions_in_order(self):
        def inverse(index: int) -> float:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
            return 1 / index

        results = run_threads(3, inverse)
        assert isinstance(results[0], ZeroDivisionError)
        assert results[1:] == [1, 0.5]

    def test_processes_share_the_test_database(self):
        get_user_model().objects.create(username="parent")
        name = str(connection.settings_dict["NAME"])
        results = run_processes(3, _user_from_a_process, "a", 1)
        assert results == [(index, name, ("a", 1)) for index in range(3)]
        assert get_user_model().objects.count() == 4

    def test_exceptions_of_processes_are_returned(self):
        results = run_processes(2, _fail)
        assert [(type(result), str(result)) for result in results] == [(LookupError, "0"), (LookupError, "1")]

    def test_exceptions_that_do_not_travel_are_described(self):
        [result] = run_processes(1, _fail_unpicklable)
        assert str(result) == "_Unpicklable: about process 0"

    def test_a_worker_can_be_killed(self):
        worker = Worker(_user_from_a_process, 0)
        worker.wait_until_ready()
        worker.kill()
        assert worker.ended() == -9
        assert get_user_model().objects.count() == 0


@pytest.mark.skipif(find_binaries() is None, reason="no server binaries here")
class TestPrivateServer:
    def test_settings_restart_and_cleanup(self):
        with private_server(work_mem="5MB", autovacuum=False) as server:
            directory = server._directory
            with psycopg.connect(server.url, autocommit=True) as session:
                assert _setting(session, "work_mem") == "5MB"
                assert _setting(session, "autovacuum") == "off"
                assert _setting(session, "fsync") == "off"
                assert _setting(session, "synchronous_commit") == "on"
                assert _setting(session, "max_connections") == "200"
                session.execute("CREATE TABLE kept AS SELECT 42 AS answer")
            url = server.url
            for mode in ("fast", "immediate"):
                server.restart(mode)
                with psycopg.connect(url) as session:
                    assert session.execute("SELECT answer FROM kept").fetchone() == (42,)
        assert not directory.exists()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url, connect_timeout=5)

    def test_strangers_are_refused(self):
        with (
            private_server() as server,
            pytest.raises(psycopg.OperationalError, match="password"),
        ):
            psycopg.connect(f"postgresql://postgres:guess@127.0.0.1:{server.port}/postgres")

    def test_a_failing_block_leaves_nothing(self):
        servers = []

        def use_and_fail() -> None:
            with private_server() as server:
                servers.append(server)
                raise LookupError

        with pytest.raises(LookupError):
            use_and_fail()
        assert not servers[0]._directory.exists()


def _setting(session: psycopg.Connection, name: str) -> object:
    row = session.execute("SELECT current_setting(%s)", [name]).fetchone()
    return row and row[0]
