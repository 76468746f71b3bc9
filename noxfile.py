"""The contract and the doors on the supported pairs of Python and Django that `make test` does not have."""

import sys
from importlib.metadata import version

import nox

nox.options.error_on_missing_interpreters = False

DJANGO = {"5.2": "Django>=5.2,<5.3", "6": "Django>=6.0,<7"}
PAIRS = [("3.11", "5.2"), ("3.12", "5.2"), ("3.12", "6"), ("3.13", "6")]
FOLDERS = ("contract", "store", "models", "api", "admin", "runtime", "maintenance", "observe")
NEED_MORE = ("tests/api/test_fuzz.py", "tests/api/test_generated_client.py")
"""Than `test-core` installs."""


def is_here(python: str, django: str) -> bool:
    """Whether this environment has the pair."""
    return python == "{}.{}".format(*sys.version_info) and version("Django").startswith(f"{django}.")


@nox.session
@nox.parametrize("python,django", [pair for pair in PAIRS if not is_here(*pair)])
def tests(session: nox.Session, django: str) -> None:
    """Run them on SQLite and on PostgreSQL."""
    session.install("-e", ".[binary,demo,test-core]", DJANGO[django])
    chosen = session.posargs or [
        *(f"tests/{folder}" for folder in FOLDERS),
        *(f"--ignore={path}" for path in NEED_MORE),
    ]
    session.run("python", "-m", "tests.run", "-q", *chosen)
