"""A new column of the session is its line in the model, and the field of `SessionState` if callers see it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PLANTED = {
    "helix_sessions/models/sessions.py": (
        "    status_since = ",
        "    try_again_at = models.DateTimeField(null=True)\n"
        "    tries = models.BigIntegerField(null=True)\n"
        '    plan = column(DocumentField(null=True), read="on request", saved=True, branched=True)\n'
        "    planted_at = column(models.DateTimeField(null=True), saved=True, branched=True)\n"
        "    machine_name = column(IdField(null=True), imported=False)\n",
    ),
    "helix_sessions/values/sessions.py": (
        "    output: JSON = None\n",
        "    tries: int | None = None\n    plan: JSON = None\n    planted_at: datetime | None = None\n",
    ),
}
"""The file, before which line, and the lines. That is all, but for the migration that Django writes."""

JOURNEY = """
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO

import django

django.setup()
from django.contrib.auth import get_user_model
from django.core.management import call_command
from rest_framework.test import APIClient

call_command("makemigrations", "helix_sessions", name="planted", verbosity=0)
call_command("migrate", verbosity=0)

from helix_sessions.models import Session
from helix_sessions.store import SessionStore

store = SessionStore()
plan, due = {"steps": [1, "two"]}, datetime(2031, 2, 3, tzinfo=UTC)
state = store.create_session("s", agent_type="a")
assert (state.plan, state.planted_at, state.tries) == (None, None, None), state
saved = store.save_state("s", replace(state, plan=plan, planted_at=due, tries=7))
first = saved.checkpoint_id
assert (saved.plan, saved.planted_at, saved.tries) == (plan, due, None), "a save writes what callers own"

with store._write("s") as work:  # as an operation would that sets the others
    assert (work.session.tries, work.session.try_again_at, work.session.planted_at) == (None, None, due)
    work.change(tries=3, try_again_at=due, machine_name="n1")
loaded = store.load_state("s")
assert (loaded.plan, loaded.planted_at, loaded.tries) == (plan, due, 3), loaded

store.save_state("s", replace(loaded, plan=None, planted_at=None))
then = store.get_checkpoint("s", first).state
assert (then.plan, then.planted_at, then.tries) == (plan, due, None), then
branched = store.clone_session("s", "b", checkpoint_id=first)
assert (branched.plan, branched.planted_at, branched.tries) == (plan, due, None), branched
rewound = store.rewind("s", checkpoint_id=first)
assert (rewound.plan, rewound.planted_at, rewound.tries) == (plan, due, 3), rewound

file = StringIO()
store.export_sessions(file, session_ids=["s"])
store.delete_session("s")
store.import_sessions(file.getvalue().splitlines())
row = Session.objects.get(session_id="s")
assert (row.plan, row.planted_at, row.tries, row.try_again_at) == (plan, due, 3, due), vars(row)
assert row.machine_name is None, "it means nothing in another installation"

client = APIClient(SERVER_NAME="localhost")
client.force_authenticate(get_user_model().objects.create_superuser("root", "r@example.com", "root"))
body = client.get("/api/sessions/s/").json()
assert (body["plan"], body["tries"]) == (plan, 3), body
answer = client.put("/api/sessions/s/state/", {**body, "plan": ["sent"]}, format="json")
assert answer.status_code == 200, answer.content
assert store.load_state("s").plan == ["sent"]
"""


def test_a_planted_column_is_read_saved_branched_rewound_exported_and_served(tmp_path: Path) -> None:
    for name in ("helix_sessions", "project", "templates"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (line, planted) in PLANTED.items():
        file = tmp_path / name
        before, found, after = file.read_text().partition(line)
        assert found, f"{name} has no line {line!r}"
        file.write_text(f"{before}{planted}{found}{after}")
    (tmp_path / "journey.py").write_text(JOURNEY)
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "DATABASE_URL": f"sqlite:///{tmp_path / 'db.sqlite3'}",
        "HELIX_SECRET_KEY": "tests",
        "PYTHONPATH": str(tmp_path),
    }
    command = [sys.executable, "journey.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
