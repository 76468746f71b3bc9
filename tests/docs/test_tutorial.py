"""The tutorial, followed by a stranger: a new project, every file written, every command given."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, page

pytestmark = pytest.mark.once

BLOCKS = page("tutorial.md").blocks
NOT_RUN = re.compile(r"pip install |python manage\.py runserver$")
"""What is there already, and what does not end."""

SHELL = """
import sys, django
django.setup()
from tests.docs.examples import run
from tests.docs.pages import Block
run(Block("python", (), sys.stdin.read(), int(sys.argv[1])), {"__name__": "docs"}, file="docs/tutorial.md")
"""


def test_it_can_be_followed(tmp_path: Path) -> None:
    pytest.importorskip("pydantic_ai")
    printed = "".join(_follow(block, tmp_path) for block in BLOCKS)
    assert printed.count("Paying 4990 cents back under the key ") == 1


def _follow(block: Block, project: Path) -> str:
    if block.language == "sh":
        return "".join(
            _run(_command(line), project) for line in block.code.splitlines() if not NOT_RUN.match(line)
        )
    assert block.language == "python"
    [mark] = block.marks
    if mark == "shell":
        return _run([sys.executable, "-c", SHELL, str(block.line)], project, block.code)
    with open(project / mark, "a", encoding="utf-8") as file:
        file.write(f"\n{block.code}")
    return ""


def _command(line: str) -> list[str]:
    program, *arguments = shlex.split(line)
    if program == "django-admin":
        return [sys.executable, "-m", "django", *arguments]
    assert program == "python", line
    return [sys.executable, *arguments, *(["--noinput"] if "createsuperuser" in arguments else [])]


def _run(command: list[str], project: Path, text: str | None = None) -> str:
    foreign = ("_API_KEY", "DATABASE_URL")
    environment = {name: value for name, value in os.environ.items() if not name.endswith(foreign)} | {
        "PYTHONPATH": f"{project}{os.pathsep}{ROOT}",
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "DJANGO_SUPERUSER_USERNAME": "amina",
        "DJANGO_SUPERUSER_PASSWORD": "a long password",
        "DJANGO_SUPERUSER_EMAIL": "amina@shop.example",
    }
    if "startproject" in command:
        del environment["DJANGO_SETTINGS_MODULE"]
    done = subprocess.run(
        command, cwd=project, env=environment, input=text, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, f"{shlex.join(command[1:])[:200]}\n{done.stdout}\n{done.stderr}"
    return done.stdout
