"""A checkpoint's own line: a branch from it and a rewind to it have its messages, whatever was said since."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from helix_sessions import models
from helix_sessions.exceptions import EventsArchived
from helix_sessions.runtime import AgentDefinition, ForkSession, SessionRuntime
from helix_sessions.store import SessionStore
from tests.contract.suspended import calling, messages, result
from tests.invariants import assert_healthy, assert_invariants, assert_valid_transcript, dump
from tests.maintenance.conftest import archive_storage  # noqa: F401

pytestmark = pytest.mark.django_db


def say(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for text in texts]


def commit(store: SessionStore, name: str, *said: dict[str, Any]) -> None:
    state = replace(store.load_state("s"), custom_state={"at": name})
    store.save_state_and_promote_staging("s", state, said, {"checkpoint_id": name})


@pytest.fixture
def rewound(store: SessionStore) -> str:
    """A session with the lines `one, two` and, from `one` on, `one, three`, which is the present one."""
    store.create_session("s", agent_type="agent")
    commit(store, "one", *say("one a", "one b"))
    commit(store, "two", *say("two a", "two b", "two c"))
    store.rewind("s", checkpoint_id="one")
    commit(store, "three", *say("three a"))
    return "s"


TWO = say("one a", "one b", "two a", "two b", "two c")


def test_a_branch_of_the_line_that_was_left(store: SessionStore, rewound: str) -> None:
    before = dump()
    state = store.clone_session(rewound, "branch", checkpoint_id="two")

    assert (state.custom_state, state.message_count) == ({"at": "two"}, 5)
    assert messages(store, "branch") == TWO
    events = store.get_events("branch")
    assert [event.type for event in events] == ["session_started", *["user_message"] * 5]
    assert [event.data for event in events[1:]] == TWO
    assert_invariants("branch")
    store.delete_session("branch")
    assert dump() == before, "the source does not change"


def test_fewer_messages_of_it(store: SessionStore, rewound: str) -> None:
    for count in range(7):
        state = store.clone_session(rewound, f"b{count}", checkpoint_id="two", message_count=count)
        assert state.message_count == min(count, 5)
        assert messages(store, f"b{count}") == TWO[:count]
        assert_invariants(f"b{count}")


def test_the_present_line_is_as_before(store: SessionStore, rewound: str) -> None:
    for name, said in (("three", say("one a", "one b", "three a")), ("one", TWO[:2])):
        assert store.clone_session(rewound, name, checkpoint_id=name).custom_state == {"at": name}
        assert messages(store, name) == said
        assert_invariants(name)
    assert messages(store, store.clone_session(rewound, "now").session_id) == messages(store, rewound)


def test_a_turn_on_a_branch(store: SessionStore, rewound: str) -> None:
    turn = store.begin_turn("branch", message="what if", branch=(rewound, "two"))
    assert turn.state.custom_state == {"at": "two"}
    assert messages(store, "branch") == [*TWO, *say("what if")]
    assert_invariants("branch")


def test_open_calls_are_those_of_the_line(store: SessionStore) -> None:
    """The call is open on the line that was left, and answered on the present one."""
    store.create_session("s", agent_type="agent")
    commit(store, "one", *say("hello"))
    commit(store, "open", calling("x"))
    store.rewind("s", checkpoint_id="one")
    store.append_messages("s", [calling("y"), result("y")])

    store.begin_turn("branch", message="go on", branch=("s", "open"))

    said = messages(store, "branch")
    assert [message["role"] for message in said] == ["user", "assistant", "tool", "user"]
    assert (said[2]["tool_call_id"], said[2]["is_error"]) == ("x", True)
    assert_valid_transcript("branch")
    assert_invariants("branch")


def test_a_fork_of_the_runtime_is_of_the_present(store: SessionStore) -> None:
    runtime = SessionRuntime(store)
    runtime.create(AgentDefinition("writer"), session_id="s")
    commit(store, "one", *say("one"))
    commit(store, "two", *say("two"))
    store.rewind("s", checkpoint_id="one")
    store.append_messages("s", say("three"))

    fork = runtime.execute("s", ForkSession("fork"))

    assert list(fork.state.messages) == messages(store, "fork") == say("one", "three")


def test_context_updates_of_the_line_come_along(store: SessionStore) -> None:
    class Source:
        key, value = "mood", "calm"

        def observe(self, session: Any) -> Any:
            return self.value

        def baseline(self, value: Any) -> str:
            return f"The mood is {value}."

        def update(self, old: Any, new: Any) -> str:
            return f"The mood is now {new}."

        def removed(self, old: Any) -> str:
            return "There is no mood."

    source = Source()
    store.create_session("s", agent_type="agent")
    store.reconcile_context("s", [source])
    commit(store, "one", *say("one"))
    source.value = "wild"
    assert store.reconcile_context("s", [source]).kind == "updated"
    commit(store, "two", *say("two"))
    store.rewind("s", checkpoint_id="one")
    store.append_messages("s", say("three"))

    store.clone_session("s", "branch", checkpoint_id="two")
    store.rewind("s", checkpoint_id="two")

    assert messages(store, "branch") == messages(store, "s")
    assert store.get_context("branch") == store.get_context("s")
    assert models.ContextUpdate.objects.filter(session_id="branch").count() == 1
    assert_invariants("branch")
    assert_invariants("s")


def test_what_was_archived_is_not_left_out_silently(
    store: SessionStore,
    rewound: str,
    archive_storage: Path,  # noqa: F811
) -> None:
    store.archive_events(rewound, keep=1)
    before = dump()
    for call in (
        lambda: store.clone_session(rewound, "branch", checkpoint_id="two"),
        lambda: store.begin_turn("branch", branch=(rewound, "two")),
        lambda: store.rewind(rewound, checkpoint_id="two"),
    ):
        with pytest.raises(EventsArchived):
            call()
        assert dump() == before
    assert store.clone_session(rewound, "short", checkpoint_id="two", message_count=2).message_count == 2
    assert messages(store, store.rewind(rewound, checkpoint_id="one").session_id) == TWO[:2]


def test_whatever_happened_a_branch_and_a_rewind_agree(store: SessionStore) -> None:
    for seed in range(20):
        chance, key = Random(seed), f"s{seed}"
        store.create_session(key, agent_type="agent")
        lines: dict[str, list[Any]] = {}
        for number in range(14):
            act = chance.random()
            if act < 0.55 or not lines:
                state = replace(store.load_state(key), custom_state={"at": number})
                said = say(*(f"{number}.{n}" for n in range(chance.randint(0, 3))))
                store.save_state_and_promote_staging(key, state, said, {"checkpoint_id": f"c{number}"})
                lines[f"c{number}"] = messages(store, key)
            elif act < 0.75:
                chosen = chance.choice(list(lines))
                store.rewind(key, checkpoint_id=chosen)
                assert messages(store, key) == lines[chosen], (seed, number)
            elif act < 0.9:
                store.truncate_messages(key, chance.randint(0, store.get_message_count(key)))
            else:
                store.append_messages(key, say(f"{number}"))
        for name, said in lines.items():
            count = chance.choice([None, None, chance.randint(0, 5)])
            branch = f"{key} {name}"
            state = store.clone_session(key, branch, checkpoint_id=name, message_count=count)
            assert messages(store, branch) == said[:count], (seed, name)
            assert state.custom_state == {"at": int(name[1:])}
        assert_healthy(key, *(f"{key} {name}" for name in lines))


def test_a_branch_belongs_to_who_owns_its_source_now(store: SessionStore, django_user_model: Any) -> None:
    """Not to who owned it when the checkpoint was made."""
    one, other = (django_user_model.objects.create_user(name) for name in ("one", "other"))
    store.create_session("s", agent_type="a", owner=one)
    store.create_checkpoint("s", {"checkpoint_id": "c"})
    models.Session.objects.filter(session_id="s").update(owner=other)

    assert store.clone_session("s", "branch", checkpoint_id="c").owner_id == other.pk


def test_a_branch_has_executed_nothing_yet(store: SessionStore) -> None:
    SessionRuntime(store=store).create(AgentDefinition("a"), session_id="s")
    models.AgentRecord.objects.filter(session_id="s").update(execution_count=3)
    store.clone_session("s", "branch")

    record = models.AgentRecord.objects.get(session_id="branch")
    assert (record.execution_count, record.execution) == (0, None)
