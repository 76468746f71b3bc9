"""The tests on every supported pair of Python and Django."""

import nox

nox.options.error_on_missing_interpreters = False

DJANGO = {"5.2": "Django>=5.2,<5.3", "6": "Django>=6.0,<7"}


@nox.session
@nox.parametrize("python,django", [("3.11", "5.2"), ("3.12", "5.2"), ("3.12", "6"), ("3.13", "6")])
def tests(session: nox.Session, django: str) -> None:
    """Run every test on SQLite and on PostgreSQL."""
    session.install("-e", ".[binary,demo,test]", DJANGO[django])
    session.run("python", "-m", "tests.run", *session.posargs)
