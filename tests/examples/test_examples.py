"""The cookbook: every project is whole, small, and passes its own tests in a process of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECTS = sorted(path.parent for path in (ROOT / "examples").glob("*/manage.py"))
NEEDED = {"nightly_batch": "django_tasks_db", "htmx_chat": "django_htmx"}
MOST_LINES = 150

pytestmark = pytest.mark.once


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_it_passes_its_own_tests(project: Path, tmp_path: Path):
    for module in ("pydantic_ai", NEEDED.get(project.name, "django")):
        pytest.importorskip(module)
    there = shutil.copytree(project, tmp_path / project.name)
    foreign = [name for name in os.environ if name.endswith("_API_KEY") or name.startswith("DJANGO_")]
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    done = subprocess.run(
        [sys.executable, "manage.py", "test", "--noinput"],
        cwd=there,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "\nOK\n" in done.stderr


def test_each_is_small_and_has_a_page():
    index = (ROOT / "examples" / "README.md").read_text()
    assert len(PROJECTS) == 4
    for project in PROJECTS:
        files = [*project.rglob("*.py"), *project.rglob("*.html")]
        lines = sum(len(path.read_text().splitlines()) for path in files if path.name != "tests.py")
        assert lines < MOST_LINES, f"{project.name} has {lines} lines."
        assert (project / "README.md").read_text().startswith("# "), project.name
        assert f"]({project.name}/README.md)" in index, project.name
