"""The actions, one by one."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from helix_sessions.exceptions import InvalidDocument, InvalidInput
from helix_sessions.runtime import (
    Budget,
    ChangeBudget,
    ChangeModel,
    ChangeSystemPrompt,
    ClearSession,
    ResumeSession,
    SendMessage,
    SuspendSession,
    UpdateTask,
    WriteMetadata,
)
from tests.rows import each

HELLO = {"role": "user", "content": "hello"}
pytestmark = pytest.mark.django_db


def task(content="wash up", status="pending", **more):
    return {"content": content, "status": status, **more}


def test_suspend_and_resume(runtime, session, store):
    assert runtime.execute("s", SuspendSession()).status == "suspended"
    assert store.load_state("s").status == "paused"
    resumed = runtime.execute("s", ResumeSession())
    assert (resumed.status, resumed.version) == ("active", 3)
    assert resumed.state == session.state
    changes = [event.data for event in store.get_events("s", types=["status_changed"])]
    assert changes == [{"from": "active", "to": "paused"}, {"from": "paused", "to": "active"}]


def test_a_status_it_has_already_is_saved_but_no_change(runtime, session, store):
    assert runtime.execute("s", ResumeSession()).version == 2
    assert not store.get_events("s", types=["status_changed"])


def test_clearing_empties_the_transcript_not_the_log(runtime, session, store):
    runtime.execute("s", SendMessage("hello", lambda session: "hi"))
    runtime.execute("s", WriteMetadata("a", 1))
    before = runtime.get_session("s")
    cleared = runtime.execute("s", ClearSession())
    assert cleared.state.messages == []
    assert cleared.state.execution is None
    assert cleared == runtime.get_session("s")
    rest = ("metadata", "system_prompt", "model", "budget", "execution_count")
    assert all(getattr(cleared.state, name) == getattr(before.state, name) for name in rest)
    assert (cleared.definition, cleared.status) == (before.definition, "active")
    said = [event.data for event in store.get_events("s", types=["user_message", "assistant_message"])]
    assert said == [HELLO, {"role": "assistant", "content": "hi"}]
    assert store.get_messages("s").messages == []


@each("model", ["large", {"name": "large", "temperature": 0.5}, None])
def test_model(runtime, session, model, store):
    assert runtime.execute("s", ChangeModel(model)).state.model == model
    assert runtime.get_session("s").state.model == model
    assert runtime.get_session("s").definition.model == "small"
    assert store.get_events("s", types=["model_changed"])[-1].data == {"model": model}


@each(
    "budget",
    [
        Budget(
            max_steps=1, max_tokens=2, max_seconds=0.5, max_cost=3, deadline=datetime(2030, 1, 1, tzinfo=UTC)
        ),
        Budget(),
        None,
    ],
    ids=["all", "no limits", "none"],
)
def test_budget(runtime, session, budget, store):
    assert runtime.execute("s", ChangeBudget(budget)).state.budget == budget
    assert runtime.get_session("s").state.budget == budget
    assert len(store.get_events("s", types=["budget_updated"])) == 1


def test_a_budget_may_be_a_dict(runtime, session):
    limits: Any = {"max_steps": 2, "deadline": "2030-01-01T00:00:00+00:00"}
    given = ChangeBudget(limits)
    expected = Budget(max_steps=2, deadline=datetime(2030, 1, 1, tzinfo=UTC))
    assert runtime.execute("s", given).state.budget == expected


def test_system_prompt(runtime, session, store):
    text = "Be brief.\x00 \N{GRINNING FACE}"
    assert runtime.execute("s", ChangeSystemPrompt(text)).state.system_prompt == text
    assert runtime.get_session("s").state.system_prompt == text
    assert store.get_events("s", types=["system_prompt_changed"])[0].data == {"system_prompt": text}
    with pytest.raises(ValueError, match="string"):
        ChangeSystemPrompt(cast(Any, None))


def test_metadata(runtime, session, store):
    runtime.execute("s", WriteMetadata("a", {"b": [1, None]}))
    assert runtime.execute("s", WriteMetadata("n", None)).state.metadata == {"a": {"b": [1, None]}, "n": None}
    assert store.load_state("s").metadata == {"a": {"b": [1, None]}, "n": None}
    assert store.get_events("s", types=["metadata_patched"])[-1].data == {"keys": ["n"]}


@each("bad", [(1, 1), ("a", object()), ("a", "\x00"), ("\x00", 1), ("a", float("inf"))])
def test_bad_metadata_fails_at_construction(bad):
    with pytest.raises((InvalidInput, InvalidDocument)):
        WriteMetadata(*bad)


class TestTasks:
    def test_they_are_metadata(self, runtime, session, store):
        tasks = [
            task(),
            task("dry", "in_progress", active_form="drying"),
            task("put away", "completed", active_form=None),
        ]
        assert runtime.execute("s", UpdateTask(tasks)).state.metadata == {"tasks": tasks}
        assert store.load_state("s").metadata["tasks"] == tasks
        assert runtime.execute("s", UpdateTask([])).state.metadata == {"tasks": []}

    def test_at_most_20_and_one_in_progress(self):
        assert len(UpdateTask([task()] * 20).tasks) == 20
        with pytest.raises(ValueError, match="20"):
            UpdateTask([task()] * 21)
        UpdateTask([task(status="in_progress"), *[task()] * 19])
        with pytest.raises(ValueError, match="one"):
            UpdateTask([task(status="in_progress")] * 2)

    @each(
        "tasks",
        [
            None,
            "wash up",
            {"content": "a", "status": "pending"},
            [None],
            [{}],
            [{"content": "a"}],
            [task("")],
            [task(1)],
            [task(status="done")],
            [task(active_form=1)],
            [task(colour="red")],
        ],
        ids=str,
    )
    def test_bad_input_fails_at_construction(self, tasks):
        with pytest.raises(ValueError):  # noqa: PT011
            UpdateTask(tasks)


def test_actions_are_values():
    assert ChangeModel("m") == ChangeModel("m")
    assert UpdateTask([task()]) == UpdateTask((task(),))
    changed: Any = ChangeModel("m")
    with pytest.raises(AttributeError):
        changed.model = "n"
