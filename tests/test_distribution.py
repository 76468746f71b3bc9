"""The wheel, installed where nothing of the repository is: it has what the quickstart and the admin need."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, page

pytestmark = [pytest.mark.slow, pytest.mark.once]

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
    folder = tmp_path_factory.mktemp("wheel")
    _run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    )
    [built] = folder.glob("*.whl")
    return built


def test_it_has_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"helix_sessions", "django_helix_sessions"}
    for wanted in ("py.typed", "migrations/0001_initial.py", "static/helix_sessions/console.css"):
        assert f"helix_sessions/{wanted}" in names
    assert any(name.startswith("helix_sessions/templates/admin/") for name in names)


def test_the_quickstart_without_any_extra(wheel: Path, tmp_path: Path) -> None:
    python = _environment(tmp_path)
    _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[binary]"])
    assert "quickstart done" in _quickstart(python, tmp_path)


def test_the_quickstart_with_every_extra(wheel: Path, tmp_path: Path) -> None:
    """Those of this environment stand in for a second installation."""
    python = _environment(tmp_path)
    [folder] = (tmp_path / "venv").glob("lib/*/site-packages")
    (folder / "extras.pth").write_text(sysconfig.get_path("purelib") + "\n")
    _run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed", str(wheel)])
    assert "quickstart done" in _quickstart(python, tmp_path)


def _environment(folder: Path) -> str:
    _run([sys.executable, "-m", "venv", str(folder / "venv")])
    return str(folder / "venv/bin/python")


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


@pytest.mark.skipif(shutil.which("xgettext") is None, reason="no gettext here")
def test_its_texts_can_be_translated(tmp_path: Path) -> None:
    package = shutil.copytree(ROOT / "helix_sessions", tmp_path / "helix_sessions")
    (package / "locale").mkdir(exist_ok=True)
    admin = Path(sys.executable).with_name("django-admin")
    _run([str(admin), "makemessages", "--locale", "de"], cwd=package)
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
