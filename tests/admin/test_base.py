"""What the console stands on."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from helix_sessions.admin import SessionAdmin
from helix_sessions.templatetags import helix_admin

PROGRAM = """
import django
from django.conf import settings

settings.configure(
    SECRET_KEY="x",
    USE_TZ=True,
    INSTALLED_APPS={apps},
    TEMPLATES=[{{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}}],
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
)
django.setup()
from django.template import engines

assert engines["django"].from_string("fine").render({{}}) == "fine"
{more}
"""

ADMIN = ["django.contrib.admin", "django.contrib.sessions", "django.contrib.messages"]
NEEDED = ["django.contrib.auth", "django.contrib.contenttypes", "helix_sessions"]


def run(apps: list[str], more: str = "") -> None:
    program = PROGRAM.format(apps=apps, more=more)
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])


def test_tags_do_not_import_the_console():
    tree = ast.parse(Path(str(helix_admin.__file__)).read_text())
    names = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert not [name for name in names if name and name.startswith("helix_sessions")]


def test_a_project_without_the_admin():
    run(NEEDED)


def test_the_stock_admin():
    from django.contrib.admin import ModelAdmin

    assert issubclass(SessionAdmin, ModelAdmin)
    assert not any(base.__module__.startswith("unfold") for base in SessionAdmin.__mro__)


def test_unfold_where_it_is_installed():
    pytest.importorskip("unfold")
    run(
        ["unfold", *ADMIN, *NEEDED],
        "from helix_sessions.admin import SessionAdmin\nfrom unfold.admin import ModelAdmin\n"
        "assert issubclass(SessionAdmin, ModelAdmin)",
    )
