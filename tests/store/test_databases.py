"""A store works on its own database, whatever routers say: it reads what it wrote, and writes nowhere else.

The second database is used in a process of its own, because a test may not connect to one that it makes.
"""

import asyncio
import io
from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from traceback import format_exc
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections
from django.test import override_settings

from helix_sessions.exceptions import SessionNotFound, StoreUnavailable
from helix_sessions.models import Session
from helix_sessions.runtime import AgentDefinition, ForkSession, SendMessage, SessionRunner, SessionRuntime
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.types import RetentionPolicy, TurnOutcome
from tests.contract.calls import IDLE, KEEPING, MESSAGE_EVENT, RAISING, READING, USER, Call
from tests.invariants import dump

pytestmark = pytest.mark.django_db(transaction=True)


class Nowhere:
    """Sends whatever is left to a router to a database that does not exist: a replica that lags for ever."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "nowhere" if model._meta.app_label == "helix_sessions" else None

    db_for_write = db_for_read


@pytest.fixture
def routed(settings: Any) -> None:
    settings.DATABASE_ROUTERS = [Nowhere()]


class Speaker:
    """An agent that calls a tool and then says something."""

    tools: dict[str, Callable[..., Any]] = {"look": lambda arguments, turn: "seen"}
    client_tools = approval_tools = ()

    def run_turn(self, turn: Any) -> TurnOutcome:
        if turn.context.messages[-1]["role"] == "user":
            calls = [{"id": f"c{len(turn.context.messages)}", "name": "look", "arguments": {}}]
            return TurnOutcome({"role": "assistant", "content": None, "tool_calls": calls})
        return TurnOutcome({"role": "assistant", "content": "done"})


def use_everything(store: SessionStore) -> None:
    """Make every call there is, each on a session of its own, and look at what it left."""
    for number, call in enumerate((*RAISING, MESSAGE_EVENT, *KEEPING, *IDLE, *READING)):
        key = f"s{number}"
        store.create_session(key, agent_type="writer")
        call.arrange(store, key)
        if call in READING:
            store.create_run(key, run_id="r")
            store.create_checkpoint(key, {"checkpoint_id": "c"})
        head = store.get_session_head(key).head_seq
        call.act(store, key)
        if call.event:
            assert call.event in [event.type for event in store.get_events(key, head + 1)], call
    store.create_session("root", agent_type="boss", tags=["t"], metadata={"k": 1})
    store.create_session("child", agent_type="worker", parent_session_id="root")
    store.clone_session("root", "branch")
    assert [found.session_id for found in store.list_sessions(tag="t", limit=1).items] == ["branch"]
    file = io.StringIO()
    store.export_sessions(file, session_ids=["root"])
    assert store.import_sessions(io.StringIO(file.getvalue()), on_collision="renew").renewed == 2
    assert store.examine_sessions(deep=True) == []
    assert store.find_notes(run_id="none") == []
    store.list_abandoned(agent_types=["writer"])
    assert store.list_unattended(agent_types=["writer"]) != []
    assert store.settle_expired_calls() == 0
    assert store.prune_sessions(RetentionPolicy(terminal_for=timedelta(0)), dry_run=True).errors == 0
    assert store.erase_user(user_id="nobody").sessions == 0
    store.delete_session("root")
    assert not store.session_exists("child")


def drive(store: SessionStore) -> None:
    """Drive sessions by the runner and by the runtime."""
    store.create_session("driven", agent_type="writer")
    store.admit_input("driven", "hello", resume=False)
    outcome = SessionRunner(Speaker(), store=store).run("driven")
    assert (outcome.kind, store.get_message_count("driven")) == ("completed", 4), outcome
    runtime = SessionRuntime(store)
    runtime.create(AgentDefinition("writer"), session_id="acted")
    execution = runtime.execute("acted", SendMessage("hello", Speaker())).state.execution
    assert execution is not None
    assert execution.status == "completed"
    runtime.execute("acted", ForkSession("forked"))
    assert len(runtime.get_session("forked").state.messages) == 4
    with store.subscribe("driven", after=0) as events:
        assert next(iter(events)).type == "session_started"


def test_a_store_that_names_its_database_asks_no_router(routed: None) -> None:
    store = SessionStore("default")
    use_everything(store)
    drive(store)


def test_a_store_of_another_database(second: str, run_processes: Any) -> None:
    assert run_processes(1, use_another_database, second) == [""]
    assert not any(dump().values())


def use_another_database(index: int, name: str) -> str:
    """Make every call on another database than the default one; what went wrong."""
    connections.settings["second"] = {**deepcopy(connections.settings["default"]), "NAME": name}
    try:
        call_command("migrate", database="second", verbosity=0)
        with override_settings(DATABASE_ROUTERS=[Nowhere()]):
            store = SessionStore(using="second")
            use_everything(store)
            drive(store)
            asyncio.run(_talk(AsyncSessionStore(using="second")))
        _tell_apart(SessionStore("default"), store)
    except Exception:
        return format_exc()
    finally:
        connections["second"].close()
    return "" if Session.objects.using("second").count() > 90 else "nothing was stored"


async def _talk(store: AsyncSessionStore) -> None:
    await store.create_session("awaited", agent_type="writer")
    await store.append_messages("awaited", [USER])
    assert await store.get_message_count("awaited") == 1


def _tell_apart(store: SessionStore, other: SessionStore) -> None:
    """The same id in two databases is two sessions: what is remembered of one says nothing of the other."""
    for each in (store, other):
        each.create_session("both", agent_type="writer")
    for number in range(4):
        store.append_messages("both", [USER], expected_version=number + 1)
    assert other.append_messages("both", [USER], expected_version=1).version == 2
    store.delete_session("both")
    assert other.append_messages("both", [USER], expected_version=2).version == 3
    with pytest.raises(SessionNotFound):
        store.append_messages("both", [USER])


def test_a_replica_is_read_and_never_written(store: SessionStore, run_processes: Any) -> None:
    store.create_session("s", agent_type="writer", tags=["t"])
    store.create_run("s", run_id="r")
    store.update_run_status("s", "r", "completed")
    store.append_messages("s", [USER])
    store.create_checkpoint("s", {"checkpoint_id": "c"})
    before = dump()
    assert run_processes(1, use_a_replica) == [""]
    assert dump() == before


def use_a_replica(index: int) -> str:
    """Read through a connection that cannot write, then try to write; what went wrong."""
    database = deepcopy(connections.settings["default"])
    if connection.vendor == "postgresql":
        database["OPTIONS"]["options"] = "-c default_transaction_read_only=on"
    else:
        database["NAME"] = f"file:{database['NAME']}?mode=ro"
        database["OPTIONS"]["uri"] = True
        database["OPTIONS"].pop("init_command", None)
    connections.settings["replica"] = database
    store = SessionStore("replica")
    try:
        for call in READING:
            call.act(store, "s")
        assert [found.session_id for found in store.list_sessions(tag="t").items] == ["s"]
        assert store.export_sessions(io.StringIO()).sessions == 1
        assert store.examine_sessions(deep=True) == []
        with store.subscribe("s", after=0) as events:
            assert next(iter(events)).type == "session_started"
        for call in (*RAISING, *KEEPING):
            if call.arrange is Call.arrange and call.name not in ("create_run", "cleanup_orphaned_staging"):
                with pytest.raises(StoreUnavailable):
                    call.act(store, "s")
        for write in (store.create_session, lambda key, **o: store.clone_session("s", key)):
            with pytest.raises(StoreUnavailable):
                write("new", agent_type="writer")
        with pytest.raises(StoreUnavailable):
            store.delete_session("s")
    except Exception:
        return format_exc()
    finally:
        connections["replica"].close()
    return ""
