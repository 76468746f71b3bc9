"""What an action costs: so many statements, whatever the length of the transcript."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from helix_sessions.conf import conf
from helix_sessions.runtime import ChangeModel, ForkSession, SendMessage
from tests.runtime.conftest import DEFINITION

pytestmark = pytest.mark.django_db

LOAD, LOCK = 1, 1
WRITES = {"postgresql": 1, "sqlite": 3}
"""One statement for all tables, or one for each: events, the agent, the session."""

SPEND = 2

BESIDE = ("SAVEPOINT", "RELEASE", "SELECT current_setting", "SELECT set_config")
"""What a transaction in a transaction costs."""


def statements(call):
    with CaptureQueriesContext(connection) as queries:
        call()
    return [each["sql"] for each in queries if not each["sql"].startswith(BESIDE)]


@pytest.fixture
def long(store, session):
    store.append_messages("s", [{"role": "user", "content": n} for n in range(500)])


def test_an_action(runtime, long, engine):
    found = statements(lambda: runtime.execute("s", ChangeModel("m")))
    assert len(found) == LOAD + LOCK + WRITES[engine], found


def test_a_message(runtime, long, engine):
    """The message and the outcome: two locks, two writes, one of them with messages besides; and before the
    agent is asked, whose session it is and how the spend limits stand."""
    found = statements(lambda: runtime.execute("s", SendMessage("hello", lambda session: "hi")))
    messages = 0 if engine == "postgresql" else 2
    assert len(found) == LOAD + 2 * (LOCK + WRITES[engine]) + messages + SPEND, found


def test_a_read(runtime, long):
    assert len(statements(lambda: runtime.get_session("s"))) == LOAD


def test_a_fork_does_not_read_the_transcript(runtime, long):
    """The database copies it. Encrypted, it has to be read: each message is sealed for its new place."""
    of_many = statements(lambda: runtime.execute("s", ForkSession()))
    reads = [sql for sql in of_many if sql.startswith("SELECT") and '"role", "content"' in sql]
    if conf.ENCRYPTION:
        assert len(reads) == 1
        return
    assert not reads
    runtime.create(DEFINITION, session_id="short", seed={"messages": [{"role": "user", "content": 1}]})
    assert len(statements(lambda: runtime.execute("short", ForkSession()))) == len(of_many)
