"""Every piece of Python in the documentation runs, in the order of its page, against a real database.

A block marked `settings` (```` ```python settings ````) is a part of a settings file: it is the whole
configuration of a small project that must pass its checks and migrate. Blocks marked by the name of a file
are run by `test_tutorial.py` and `test_first_agent.py`. There is no mark for code that does not run.
"""

import code
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helix_sessions.models import Session
from tests.docs.examples import BrokenPromise, run
from tests.docs.pages import ROOT, Block, Page, all_pages
from tests.rows import each

MARKS = {(), ("settings",), ("shop/agents.py",), ("shop/settings.py",)}
SETTINGS_PREAMBLE = """
SECRET_KEY = "docs"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "helix_sessions"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "docs.sqlite3", "OPTIONS": {
    "transaction_mode": "IMMEDIATE", "timeout": 30, "init_command": "PRAGMA synchronous=FULL;"}}}
"""

DJANGO = """
import json, sys, django
from django.core.management import call_command
django.setup()
for command in json.loads(sys.argv[1]):
    call_command(*command)
"""

MADE_BY: dict[str, str] = {}
"""The page that made a session: no two pages use one id, so that a reader can follow them in one database."""

TUTORIAL = "docs/tutorial.md"
PAGES = [
    page
    for page in all_pages()
    if page.name != TUTORIAL and any(_block.language == "python" for _block in page.blocks)
]
SETTINGS = {
    f"{page.name}:{block.line}": block for page in PAGES for block in page.blocks if "settings" in block.marks
}


def runnable(page: Page) -> list[Block]:
    return [block for block in page.blocks if block.language == "python" and not block.marks]


@each("page", PAGES, ids=lambda page: page.name)
def test_marks_are_known(page: Page):
    assert {block.marks for block in page.blocks if block.language == "python"} <= MARKS
    assert not [block.line for block in page.blocks if block.language in ("py", "python3", "pycon")]


@pytest.mark.django_db(transaction=True)
@each("page", PAGES, ids=lambda page: page.name)
def test_page_runs(page: Page):
    namespace: dict[str, Any] = {"__name__": "docs"}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in runnable(page):
            run(block, namespace, file=page.name)
    for session_id in Session.objects.values_list("session_id", flat=True):
        first = MADE_BY.setdefault(session_id, page.name)
        assert first == page.name, f"{first} has a session {session_id!r} already: readers follow both"


@pytest.mark.django_db(transaction=True)
def test_the_first_example_of_the_readme_can_be_pasted_line_by_line():
    block = runnable(Page(ROOT / "README.md"))[0]
    lines = block.code.splitlines()
    assert len(lines) <= 10
    console = code.InteractiveConsole()
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        unfinished = [console.push(line) for line in lines]
    assert errors.getvalue() == ""
    assert not unfinished[-1]


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a project that only has the preamble's settings."""
    directory = tmp_path_factory.mktemp("empty")
    run_commands(directory, "", [["migrate", "--verbosity", "0"]])
    return directory / "docs.sqlite3"


@pytest.mark.once
@pytest.mark.slow
@each("block", SETTINGS.values(), ids=SETTINGS)
def test_settings_make_a_project(
    block: Block, tmp_path_factory: pytest.TempPathFactory, migrated: Path
) -> None:
    directory = tmp_path_factory.mktemp("project")
    on_sqlite = "postgresql" not in block.code
    database = ["--database", "default"] if on_sqlite else []
    commands = [["check", "--fail-level", "WARNING", *database]]
    if on_sqlite:
        shutil.copy(migrated, directory)  # what else the settings bring is migrated
        commands += [["migrate", "--verbosity", "0"], ["migrate", "--check"]]
    run_commands(directory, block.code, commands)


def run_commands(directory: Path, settings: str, commands: list[list[str]]) -> None:
    """Run them in a project with these settings."""
    (directory / "docs_settings.py").write_text(SETTINGS_PREAMBLE + settings, encoding="utf-8")
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "docs_settings",
        "PYTHONPATH": os.pathsep.join([str(directory), str(ROOT)]),
    }
    done = subprocess.run(
        [sys.executable, "-c", DJANGO, json.dumps(commands)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@each(
    "source",
    [
        "1 + 1  # => 3",
        "1 + 1  # => 2.0",
        "x = 1  # => 1",
        "int('1')  # raises ValueError",
        "int('x')  # raises KeyError",
        "if True:\n    2  # => 2\n    pass\n",
    ],
)
def test_a_broken_promise_is_noticed(source: str):
    with pytest.raises(BrokenPromise):
        run(Block("python", (), source, 1), {}, file="page.md")


def test_a_kept_promise_is_not():
    run(Block("python", (), "[\n    1\n]  # => [1]\nint('x')  # raises ValueError", 1), {}, file="page.md")
