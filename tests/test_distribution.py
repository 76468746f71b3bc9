"""The wheel, installed where nothing of the repository is: it has what the quickstart and the admin need.

`HELIX_WHEEL` names the wheel to test, the one that is released; otherwise one is built.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, page

pytestmark = [pytest.mark.slow, pytest.mark.once, pytest.mark.timeout(900)]

OF_CONTRIBUTORS = {"demo", "test", "test-core", "lint", "servers", "matrix", "docs", "release", "bench"}
"""The extras that are no part of what a project installs."""

SETTINGS = """
SECRET_KEY = "wheel"
USE_TZ = True
CONTRIB = ("admin", "auth", "contenttypes", "messages", "sessions")
INSTALLED_APPS = [f"django.contrib.{name}" for name in CONTRIB]
INSTALLED_APPS += ["rest_framework", "helix_sessions"]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "wheel.sqlite3", "OPTIONS": {
    "transaction_mode": "IMMEDIATE", "timeout": 30, "init_command": "PRAGMA synchronous=FULL;"}}}
ROOT_URLCONF = "wheel_urls"
ALLOWED_HOSTS = ["testserver"]
STATIC_URL = "static/"
"""
URLS = """
from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls), path("api/", include("helix_sessions.api.urls"))]
"""
SCRIPT = """
import django, json, sys
django.setup()
from django.core.management import call_command
import helix_sessions
assert "site-packages" in helix_sessions.__file__, helix_sessions.__file__
call_command("check", fail_level="WARNING")
call_command("migrate", verbosity=0)
from tests.docs.examples import run
from tests.docs.pages import Block
said = {"__name__": "docs"}
for line, code in json.load(sys.stdin):
    run(Block("python", (), code, line), said, file="docs/quickstart.md")
from django.contrib.auth import get_user_model
from django.test import Client
client = Client()
client.force_login(get_user_model().objects.create_superuser("root"))
for address in ("/admin/helix_sessions/", "/admin/helix_sessions/session/", "/api/sessions/"):
    assert client.get(address).status_code == 200, address
print("quickstart done")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if "HELIX_WHEEL" in os.environ:
        return Path(os.environ["HELIX_WHEEL"]).resolve()
    folder = tmp_path_factory.mktemp("wheel")
    _run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    )
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def plain(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment that has the wheel and no extra but a driver."""
    return _installed(f"{wheel}[binary]", tmp_path_factory.mktemp("plain"))


def test_it_has_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"helix_sessions", "django_helix_sessions"}
    for wanted in ("py.typed", "migrations/0001_initial.py", "static/helix_sessions/console.css"):
        assert f"helix_sessions/{wanted}" in names
    assert any(name.startswith("helix_sessions/templates/admin/") for name in names)


def test_the_quickstart_without_any_extra(plain: str, tmp_path: Path) -> None:
    assert "quickstart done" in _quickstart(plain, tmp_path)


def test_the_quickstart_with_every_extra(wheel: Path, tmp_path: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    python = _installed(f"{wheel}[{','.join(sorted(extras.keys() - OF_CONTRIBUTORS))}]", tmp_path)
    assert "quickstart done" in _quickstart(python, tmp_path)


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
def test_its_types_are_read(plain: str, tmp_path: Path) -> None:
    """By mypy, in a project that has nothing of the repository: `py.typed` is in the wheel."""
    shutil.copytree(ROOT / "tests/consumer", tmp_path / "consumer")
    options = ("--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}")
    _run([sys.executable, "-m", "mypy", *options, "--python-executable", plain, "consumer"], cwd=tmp_path)


def _installed(what: str, folder: Path) -> str:
    _run([sys.executable, "-m", "venv", str(folder / "venv")])
    python = str(folder / "venv/bin/python")
    _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", what])
    return python


def _quickstart(python: str, folder: Path) -> str:
    (folder / "wheel_settings.py").write_text(SETTINGS)
    (folder / "wheel_urls.py").write_text(URLS)
    (folder / "tests/docs").mkdir(parents=True)
    for name in ("examples.py", "pages.py"):
        shutil.copy(ROOT / "tests/docs" / name, folder / "tests/docs")
    blocks = [
        (block.line, block.code) for block in page("quickstart.md").blocks if block.language == "python"
    ]
    environment = {"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "wheel_settings"}
    return _run([python, "-c", SCRIPT], cwd=folder, env=environment, input=json.dumps(blocks))


def _run(command: list[str], **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.mark.skipif(shutil.which("xgettext") is None and "CI" not in os.environ, reason="no gettext here")
def test_its_texts_can_be_translated(tmp_path: Path) -> None:
    package = shutil.copytree(ROOT / "helix_sessions", tmp_path / "helix_sessions")
    (package / "locale").mkdir(exist_ok=True)
    admin = Path(sys.executable).with_name("django-admin")
    command = [str(admin), "makemessages", "--locale", "de"]
    done = subprocess.run(command, cwd=package, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    found = (package / "locale/de/LC_MESSAGES/django.po").read_text()
    assert found.count("\nmsgid ") > 300
    _run(
        [
            "msgfmt",
            "--check-format",
            "--output-file",
            "/dev/null",
            str(package / "locale/de/LC_MESSAGES/django.po"),
        ]
    )
