"""A context that is read in pieces is the context read whole, and only grows until it is compacted."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from helix_sessions.runtime import CompactionPolicy
from helix_sessions.store import SessionStore
from helix_sessions.store.context.context_reads import read_context
from tests.contract.sources import Said

pytestmark = pytest.mark.django_db

POLICY = CompactionPolicy(None, keep_recent=40)


class History:
    """Random things that happen to a session."""

    def __init__(self, store: SessionStore, session: str, seed: int) -> None:
        self.store, self.session, self.random = store, session, random.Random(seed)
        self.day, self.number, self.sources = Said("day", 1), 0, 1

    def say(self) -> None:
        self.number += 1
        text = self.random.choice(["short", "é" * 50, "long " * 20]) + str(self.number)
        messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
        if self.random.random() < 0.5:
            call = {"id": f"c{self.number}", "name": "look", "arguments": {"at": self.number}}
            said = {"role": "assistant", "content": "", "tool_calls": [call]}
            messages += [said, {"role": "tool", "tool_call_id": call["id"], "content": {"seen": text}}]
        self.store.append_messages(self.session, messages)

    def steer(self) -> None:
        self.store.admit_input(self.session, "And this.", resume=False)
        self.store.promote_inputs(self.session, "steer")

    def reconcile(self) -> None:
        self.sources = self.random.choice([1, 2])
        self.day.value += self.random.choice([0, 1])
        self.store.reconcile_context(self.session, [self.day, Said("place", "here")][: self.sources])

    def commit(self) -> None:
        state = self.store.load_state(self.session)
        self.store.save_state_and_promote_staging(
            self.session, state, [{"role": "assistant", "content": f"step {state.version}"}]
        )

    def compact(self) -> None:
        self.store.compact(self.session, lambda request: f"{len(request.messages)} messages", POLICY)

    def truncate(self) -> None:
        count = self.store.get_message_count(self.session)
        self.store.truncate_messages(self.session, self.random.randint(max(0, count - 5), count))

    def move(self) -> None:
        self.store.move_session(self.session, {"at": self.number})

    @property
    def additions(self) -> list[Callable[[], None]]:
        return [self.say, self.say, self.steer, self.reconcile, self.commit]

    @property
    def changes(self) -> list[Callable[[], None]]:
        return [self.compact, self.truncate, self.move]


def test_pieces_make_the_whole(store: SessionStore) -> None:
    for seed in range(8):
        history = History(store, store.ensure_session(agent_type="writer").session_id, seed)
        seen = read_context(store, history.session)
        for _ in range(40):
            for _ in range(history.random.randint(0, 3)):
                history.random.choice([*history.additions * 3, *history.changes])()
            seen = read_context(store, history.session, seen)
            assert seen == read_context(store, history.session), f"seed {seed}"
            assert seen.context == store.get_context(history.session), f"seed {seed}"


def test_between_compactions_it_only_grows_at_its_end(store: SessionStore) -> None:
    for seed in range(8):
        history = History(store, store.ensure_session(agent_type="writer").session_id, seed)
        history.reconcile()
        before: Any = None
        for step in range(40):
            if step == 20:
                history.compact()
                history.reconcile()
                before = None
            history.random.choice(history.additions)()
            context = store.get_context(history.session)
            after = [context.baseline.encode(), *(repr(message).encode() for message in context.messages)]
            assert before is None or after[: len(before)] == before, f"seed {seed}, step {step}"
            before = after


def test_what_an_owner_appended_needs_no_reading(store: SessionStore) -> None:
    session = store.ensure_session(agent_type="writer").session_id
    store.append_messages(session, [{"role": "user", "content": "a"}])
    seen = read_context(store, session)
    messages = [{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    added = store.append_messages(session, messages)
    assert seen.followed_by(messages, added.head_seq) == read_context(store, session)
    assert seen.followed_by([], added.head_seq) is seen


def thought(model: str) -> dict[str, Any]:
    block = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    return {"role": "assistant", "content": [block, {"type": "text", "text": "yes"}], "model": model}


def test_each_model_sees_its_own_reasoning(store: SessionStore) -> None:
    session = store.ensure_session(agent_type="writer").session_id
    store.append_messages(session, [{"role": "user", "content": "a"}, thought("one")])
    seen = {model: read_context(store, session, model=model) for model in (None, "one", "two")}
    store.append_messages(session, [thought("two"), {"role": "user", "content": "b"}])
    plain = {**thought("two"), "content": [{"type": "text", "text": "yes"}]}
    assert store.get_context(session).messages[1:3] == [thought("one"), thought("two")]
    assert store.get_context(session, model="one").messages[1:3] == [thought("one"), plain]
    assert "c2ln" not in str(store.get_context(session, model="three").messages)
    for model, before in seen.items():
        for other in seen:
            whole = read_context(store, session, model=other)
            assert read_context(store, session, before, model=other) == whole, (model, other)
            assert whole.context == store.get_context(session, model=other)
    assert store.get_messages(session).messages[1] == thought("one")


def test_no_reasoning_reaches_a_summary(store: SessionStore) -> None:
    session = store.ensure_session(agent_type="writer").session_id
    asked: list[Any] = []
    store.append_messages(session, [{"role": "user", "content": "a" * 400}, thought("one"), thought("two")])

    def summarize(request: Any) -> str:
        asked.append(request)
        return "summary"

    for keep in (0, 40):
        store.append_messages(session, [*[thought("one")] * 9, {"role": "user", "content": "b"}])
        store.compact(session, summarize, CompactionPolicy(None, keep_recent=keep))
    assert len(asked) == 2
    for text in (str(asked), str(store.get_context(session).messages)):
        assert "c2ln" not in text
        assert "thinking" not in text
        assert "yes" in text


def test_long_results_are_cut_for_the_model_and_stay_in_the_transcript(
    store: SessionStore, settings: Any
) -> None:
    settings.HELIX_SESSIONS = {"MAX_TOOL_OUTPUT": 1_000}
    session = store.ensure_session(agent_type="writer").session_id
    call = {"id": "1", "name": "look", "arguments": {}}
    long = {"role": "tool", "tool_call_id": "1", "content": "BEGIN" + "é" * 5_000 + "END"}
    seen = read_context(store, session)
    added = store.append_messages(session, [{"role": "assistant", "content": "", "tool_calls": [call]}, long])
    cut = store.get_context(session).messages[1]["content"]
    assert cut.startswith("BEGIN")
    assert cut.endswith("END")
    assert len(cut.encode()) <= 1_000
    messages = store.get_messages(session).messages
    assert messages[1] == long
    assert seen.followed_by(messages, added.head_seq) == read_context(store, session)


def test_old_results_are_pruned_by_a_compaction_only(store: SessionStore) -> None:
    session = store.ensure_session(agent_type="writer").session_id
    for number in range(12):
        call = {"id": str(number), "name": "look", "arguments": {}}
        result = {"role": "tool", "tool_call_id": str(number), "content": f"result {number} " + "x" * 400}
        store.append_messages(session, [{"role": "assistant", "content": "", "tool_calls": [call]}, result])
    assert "left out" not in str(store.get_context(session).messages)
    asked: list[Any] = []

    def summarize(request: Any) -> str:
        asked.append(request)
        return "summary"

    policy = CompactionPolicy(None, keep_recent=300, keep_results=600)
    store.compact(session, summarize, policy)
    results = [message["content"] for message in asked[0].messages if message["role"] == "tool"]
    assert results[:-3] == ["[A result of 409 characters, left out here.]"] * 7
    assert [text.split(" x")[0] for text in results[-3:]] == ["result 7", "result 8", "result 9"]
    [compaction] = store.get_context(session).messages
    assert "result 11 xxx" in compaction["content"]
    assert "result 9 xxx" not in compaction["content"]
    assert "result 0 xxx" in str(store.get_messages(session).messages)
