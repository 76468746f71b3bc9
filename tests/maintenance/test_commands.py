"""The commands: what an operator types, sees and gets as an exit code."""

import io
import json
import os
import signal
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.core.management.base import OutputWrapper
from django.db import connection
from django.utils import timezone

from helix_sessions.management import jobs
from helix_sessions.models import AuditEntry, Session
from helix_sessions.store import SessionStore
from tests.invariants import dump
from tests.maintenance.test_archives import talk
from tests.maintenance.test_cleanup import REF, make
from tests.maintenance.test_doctor import break_rows
from tests.maintenance.test_retention import age, old, told
from tests.parallel import ROOT, joined_database_environment
from tests.rows import each

COMMANDS = (
    "cleanup_sessions",
    "cleanup_debris",
    "prune_sessions",
    "sessions_doctor",
    "export_sessions",
    "import_sessions",
    "erase_user",
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(*arguments: str, stderr: io.StringIO | None = None) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out, stderr=stderr or io.StringIO())
    return out.getvalue()


@each("name", COMMANDS)
def test_help_says_what_it_does_and_shows_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command(name, "--help")
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert f"  manage.py {name} " in text
    assert "examples:\n" in text
    assert "--database" in text
    assert "--json" in text


@pytest.mark.django_db
class TestCleanupSessions:
    def test_text_and_json(self, store: SessionStore) -> None:
        make(store, "a")
        make(store, "b")
        assert "marked: 2" in run("cleanup_sessions", "--dry-run")
        assert json.loads(run("cleanup_sessions", "--json", "--limit", "1")) == {
            "detected": 1,
            "marked": 1,
            "already_terminal": 0,
            "snapshots_deleted": 0,
            "errors": 0,
        }
        assert "already terminal: 1" in run("cleanup_sessions", "--page-size=1", "--agent-type", "writer")
        assert not Session.objects.expired().exists()

    def test_exit_code_of_errors(self, store: SessionStore, memory: Any) -> None:
        make(store, "a", workspace_ref=REF)
        make(store, "b")
        memory.broken.add("a")
        assert "errors: 1" in run("cleanup_sessions")
        with pytest.raises(CommandError) as caught:
            run("cleanup_sessions", "--fail-on-error")
        assert caught.value.returncode == 1
        assert store.load_state("b").status == "failed"

    @each("bad", [("--page-size", "0"), ("--limit", "x")])
    def test_bad_arguments(self, bad: tuple[str, str]) -> None:
        with pytest.raises(CommandError):
            run("cleanup_sessions", *bad)

    def test_a_bar_on_a_terminal_and_lines_otherwise(
        self, store: SessionStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(jobs, "_SECONDS_BETWEEN_DRAWINGS", 0)
        monkeypatch.setattr(jobs, "_SECONDS_BETWEEN_LINES", 0)
        make(store, "a")
        terminal, file = Terminal(), io.StringIO()
        run("cleanup_sessions", "--dry-run", stderr=terminal)
        run("cleanup_sessions", "--dry-run", stderr=file)
        assert f"[{'#' * 30}] 1 of 1 sessions" in terminal.getvalue()
        assert file.getvalue() == "1 of 1 sessions\n"


SLOW = """
import os, signal
from helix_sessions.store.calls import decisions
from django.core.management import call_command
real = decisions.compare_and_set_status
def interrupting(store, *args, **kwargs):
    done = real(store, *args, **kwargs)
    os.kill(os.getpid(), signal.{signal})
    return done
decisions.compare_and_set_status = interrupting
call_command("cleanup_sessions", "--json")
"""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_ctrl_c_ends_after_the_current_session_with_the_summary(store: SessionStore, number: str) -> None:
    for index in range(5):
        make(store, f"s{index}")
    code = f"import django; django.setup()\n{SLOW.replace('{signal}', number)}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | joined_database_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["detected"], summary["marked"]) == (1, 1)
    assert "Stopping after the current session" in done.stderr
    assert Session.objects.filter(status="failed").count() == 1


@pytest.mark.django_db
def test_the_second_ctrl_c_interrupts(capsys: pytest.CaptureFixture[str]) -> None:
    found = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in background
    try:
        stderr: Any = OutputWrapper(io.StringIO())
        with jobs.stoppable(stderr) as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop()
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, found)


@pytest.mark.django_db
class TestOthers:
    def test_cleanup_debris(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="x")
        store.create_run("s")
        age("s", 1)
        assert "stuck: s" in run("cleanup_debris")
        assert json.loads(run("cleanup_debris", "--json", "--stuck-after", "10000"))["stuck"] == []

    def test_prune_asks_first(self, store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
        old(store, "s")
        with pytest.raises(CommandError, match="older-than"):
            run("prune_sessions")
        with pytest.raises(CommandError, match="no-input"):
            run("prune_sessions", "--older-than", "30")
        assert "sessions: 1" in run("prune_sessions", "--older-than", "30", "--dry-run")
        monkeypatch.setattr("sys.stdin", Terminal())
        monkeypatch.setattr("builtins.input", lambda prompt: "no")
        with pytest.raises(CommandError, match="Nothing was changed"):
            run("prune_sessions", "--older-than", "30")
        assert Session.objects.count() == 1
        monkeypatch.setattr("builtins.input", lambda prompt: "yes")
        assert "Sessions deleted" in run("prune_sessions", "--older-than", "30")
        assert Session.objects.count() == 0

    def test_prune_and_archive(self, store: SessionStore, archive_storage: Path) -> None:
        old(store, "s")
        talk(store, "long", 20)
        text = run(
            "prune_sessions",
            *("--older-than", "30", "--archive-longer-than", "10", "--keep-events", "3"),
            *("--no-input", "--json", "--fail-on-error"),
        )
        done = json.loads(text)
        assert done["pruned"]["sessions"] == done["archived"]["sessions"] == 1
        assert len(store.get_events("long")) == 3

    def test_prune_the_audit_trail(self, store: SessionStore) -> None:
        told(3, days=50)
        told(1, days=1)
        assert "entries: 3" in run("prune_sessions", "--audit-older-than", "30", "--dry-run")
        assert AuditEntry.objects.count() == 4
        done = json.loads(run("prune_sessions", "--audit-older-than", "30", "--no-input", "--json"))
        assert done["audit"] == {"entries": 3}
        assert AuditEntry.objects.count() == 1

    def test_archiving_without_a_storage_is_one_line(self, store: SessionStore, settings: Any) -> None:
        settings.HELIX_SESSIONS = {}
        with pytest.raises(CommandError, match="ARCHIVE_STORAGE"):
            run("prune_sessions", "--archive-longer-than", "10", "--keep-events", "1", "--no-input")

    def test_the_doctor_and_its_exit_code(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="x")
        assert "Nothing is wrong" in run("sessions_doctor")
        break_rows("UPDATE helix_sessions_session SET staged_count = 4")
        with pytest.raises(CommandError, match=r"1 of 1 errors are left. --repair"):
            run("sessions_doctor", "--session", "s")
        text = run("sessions_doctor", "--repair", "--json", "--deep")
        assert json.loads(text)["code"] == "staged_count"
        assert json.loads(text)["repaired"] is True
        assert "Nothing is wrong" in run("sessions_doctor")
        break_rows("UPDATE helix_sessions_session SET head_seq = 9")
        with pytest.raises(CommandError, match=r"1 of 1 errors are left\.$"):
            run("sessions_doctor", "--repair")

    @each("name", ["out.jsonl", "out.jsonl.gz"])
    def test_export_and_import(self, store: SessionStore, tmp_path: Path, name: str) -> None:
        for key in ("a", "b"):
            store.create_session(key, agent_type="x", custom_state={"text": "\u2028 ü"})
        path, rows = tmp_path / name, dump()
        assert "sessions: 2" in run("export_sessions", "--output", str(path))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not list(tmp_path.glob("*.part"))
        with pytest.raises(CommandError, match="overwrite"):
            run("export_sessions", "--output", str(path))
        run("export_sessions", "--output", str(path), "--overwrite", "--session", "a", "--session", "b")
        for key in ("a", "b"):
            store.delete_session(key)
        assert json.loads(run("import_sessions", str(path), "--json"))["sessions"] == 2
        assert dump() == rows
        with pytest.raises(CommandError, match="session_exists"):
            run("import_sessions", str(path))
        assert "skipped: 2" in run("import_sessions", str(path), "--on-collision", "skip")
        assert "renewed: 2" in run("import_sessions", str(path), "--on-collision=renew", "--no-owner")

    def test_export_to_standard_output(self, store: SessionStore) -> None:
        store.create_session("a", agent_type="x")
        lines = run("export_sessions", "--output", "-").splitlines()
        assert json.loads(lines[0])["format"] == "helix_sessions.export"
        assert json.loads(lines[-1]) == {"kind": "end", "trees": 1}

    def test_an_export_that_fails_leaves_no_file(self, store: SessionStore, tmp_path: Path) -> None:
        with pytest.raises(CommandError, match="session_not_found"):
            run("export_sessions", "--session", "unknown", "--output", str(tmp_path / "x"))
        assert not list(tmp_path.iterdir())

    def test_a_file_that_cannot_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "x.gz").write_bytes(b"not packed")
        for name in ("x.gz", "missing"):
            with pytest.raises(CommandError, match="cannot be read"):
                run("import_sessions", str(tmp_path / name))

    def test_erase_user(self, store: SessionStore) -> None:
        alice = get_user_model().objects.create_user("alice")
        store.create_session("a", agent_type="x", owner=alice)
        store.create_session("b", agent_type="x", user_id="u")
        store.create_session("c", agent_type="x")
        with pytest.raises(CommandError, match="whom"):
            run("erase_user", "--no-input")
        with pytest.raises(CommandError, match="no account"):
            run("erase_user", "--owner", "nobody", "--no-input")
        assert "sessions: 1" in run("erase_user", "--owner", "alice", "--dry-run")
        done = json.loads(
            run("erase_user", "--owner-id", str(alice.pk), "--user-id=u", "--no-input", "--json")
        )
        assert done["sessions"] == 2
        assert Session.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_an_expired_session_can_be_cleaned_up_and_pruned(store: SessionStore) -> None:
    """The life of an abandoned session, from the side of the operator."""
    store.create_session("s", agent_type="x", expires_at=timezone.now() - timedelta(days=1))
    run("cleanup_sessions", "--fail-on-error")
    run("prune_sessions", "--older-than", "0", "--no-input", "--fail-on-error")
    assert not store.session_exists("s")
    assert not connection.in_atomic_block
