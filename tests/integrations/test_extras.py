"""The frameworks are optional: the app imports none of them, and a missing one is named with its extra."""

import subprocess
import sys
import tomllib

import pytest

from tests.docs.pages import ROOT

EXTRAS = {
    "langgraph": ("langgraph", "langgraph"),
    "openai_agents": ("openai-agents", "agents"),
    "google_adk": ("google-adk", "google.adk"),
    "pydantic_ai": ("pydantic-ai", "pydantic_ai"),
}
"""Module to its extra, and the package that the extra brings."""


def run(code: str) -> subprocess.CompletedProcess[str]:
    setup = "import os, sys; os.environ['DJANGO_SETTINGS_MODULE'] = 'tests.settings'; import django\n"
    return subprocess.run(
        [sys.executable, "-c", setup + code], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_app_imports_no_framework() -> None:
    packages = [package for _, package in EXTRAS.values()]
    done = run(
        "django.setup()\n"
        "import helix_sessions.store, helix_sessions.api.urls, helix_sessions.tasks\n"
        "import helix_sessions.integrations\n"
        f"print([name for name in {packages} if name in sys.modules])"
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


@pytest.mark.parametrize("module", EXTRAS)
def test_a_missing_framework_is_named_with_its_extra(module: str) -> None:
    extra, package = EXTRAS[module]
    done = run(
        f"sys.modules[{package!r}] = None\n"
        f"django.setup()\n"
        "try:\n"
        f"    import helix_sessions.integrations.{module}\n"
        "except ImportError as error:\n"
        "    print(error)"
    )
    assert f'pip install "django-helix-sessions[{extra}]"' in done.stdout, done.stderr


def test_other_packages_are_named_with_their_extra() -> None:
    done = run(
        "sys.modules.update({'prometheus_client': None, 'cryptography': None})\n"
        "django.setup()\n"
        "from helix_sessions.content.encryption import _keyring\n"
        "for call in (lambda: __import__('helix_sessions.metrics'), lambda: _keyring({})):\n"
        "    try:\n"
        "        call()\n"
        "    except Exception as error:\n"
        "        print(error)"
    )
    metrics, encryption = done.stdout.splitlines()
    assert 'pip install "django-helix-sessions[metrics]"' in metrics
    assert 'pip install "django-helix-sessions[encryption]"' in encryption


@pytest.mark.parametrize("extra", [extra for extra, _ in EXTRAS.values()])
def test_every_extra_exists(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"][extra]
