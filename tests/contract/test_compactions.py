"""Compaction: the model sees less, the transcript stays whole."""

import json
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db.models import F
from hypothesis import given
from hypothesis import strategies as st

from helix_sessions import models
from helix_sessions.exceptions import InvalidDocument, InvalidInput, SessionNotFound, StaleState
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.store.context import compaction_plan, compactions
from helix_sessions.store.context.compaction_plan import PlacedMessage
from helix_sessions.transcripts import calls_in, open_tool_calls, results_in
from helix_sessions.types import (
    Compaction,
    CompactionPolicy,
    ModelContext,
    SummaryRequest,
    chars_over_four,
)
from tests.contract.sources import Said
from tests.invariants import assert_invariants, dump
from tests.rows import each

pytestmark = pytest.mark.django_db


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(texts)]


def call(*ids: str) -> dict[str, Any]:
    calls = [{"id": call_id, "name": "look", "arguments": {"at": call_id}} for call_id in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def result(call_id: str, content: Any = "seen") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "tool_name": "look", "content": content}


class Summarizer:
    """Remembers what it was asked, and answers as it is told."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[SummaryRequest] = []

    def __call__(self, request: SummaryRequest) -> Any:
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else f"summary {len(self.requests)}"
        if isinstance(answer, Exception):
            raise answer
        return answer


NOTHING_KEPT = CompactionPolicy(1_000, keep_recent=0)
TEN_KEPT = CompactionPolicy(1_000, keep_recent=10)


def seqs(store: SessionStore, session: str) -> list[int]:
    kinds = ["user_message", "assistant_message", "tool_message", "system_message"]
    return [event.seq for event in store.get_events(session, types=kinds)]


class TestWhatTheModelSees:
    def test_older_messages_are_summarized_and_recent_ones_become_text(
        self, store: SessionStore, session: str
    ) -> None:
        messages = said("a" * 40, "b" * 40, "c" * 20, "d" * 20)
        store.append_messages(session, messages)
        summarize = Summarizer("they spoke of letters")
        made = store.compact(session, summarize, TEN_KEPT)
        assert summarize.requests == [
            SummaryRequest(previous_summary=None, messages=messages[:2], max_tokens=4_096)
        ]
        context = store.get_context(session)
        [message] = context.messages
        assert (message["role"], message["kind"]) == ("user", "compaction")
        assert list(message) == ["role", "kind", "content"]
        assert "they spoke of letters" in message["content"]
        assert "c" * 20 in message["content"]
        assert "d" * 20 in message["content"]
        assert "b" * 40 not in message["content"]
        assert context.estimated_tokens == chars_over_four(context)
        assert made is not None
        assert made.message == message

    def test_the_transcript_stays_whole(self, store: SessionStore, session: str) -> None:
        messages = said("a", "b", "c")
        store.append_messages(session, messages)
        store.compact(session, Summarizer(), NOTHING_KEPT)
        assert store.get_messages(session).messages == messages
        assert store.get_message_count(session) == 3
        assert store.load_state(session).message_count == 3
        projected = store.project_messages(store.get_events(session))
        assert [line.content for line in projected] == ["a", "b", "c"]
        assert_invariants(session)

    def test_messages_after_it_are_seen_as_they_are(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, said("a", "b"))
        store.compact(session, Summarizer(), NOTHING_KEPT)
        later = [*said("c"), call("1"), result("1")]
        store.append_messages(session, later)
        assert store.get_context(session).messages[1:] == later

    def test_its_events(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, said("a", "b"))
        before = store.load_state(session)
        made = store.compact(session, Summarizer(), NOTHING_KEPT, reason="due")
        started, compacted = store.get_events(session, before.head_seq + 1)
        assert (started.type, started.data) == ("compaction_started", {"reason": "due"})
        assert (compacted.type, compacted.data) == (
            "compacted",
            {"from_seq": 2, "to_seq": 3, "reason": "due"},
        )
        assert store.load_state(session).version == before.version + 1
        assert made is not None
        assert (made.seq, made.from_seq, made.to_seq, made.reason) == (compacted.seq, 2, 3, "due")
        assert (made.summary, made.message_count) == ("summary 1", 2)
        assert store.list_compactions(session) == [made]

    def test_the_default_reason(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, said("a", "b"))
        made = store.compact(session, Summarizer(), NOTHING_KEPT)
        assert made is not None
        assert made.reason == "manual"

    def test_a_policy_may_be_a_dict(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, said("a", "b"))
        assert store.compact(session, Summarizer(), {"context_window": None, "keep_recent": 0})

    def test_any_text_comes_back(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, said("a", "b"))
        made = store.compact(session, Summarizer("\x00 é"), NOTHING_KEPT)
        assert made is not None
        assert store.list_compactions(session) == [made]
        assert made.summary == "\x00 é"


class TestFolding:
    def test_a_second_one_folds_the_first(self, store: SessionStore, session: str) -> None:
        messages = said("a" * 40, "b" * 40, "c" * 20, "d" * 20)
        store.append_messages(session, messages)
        summarize = Summarizer()
        first = store.compact(session, summarize, TEN_KEPT)
        later = said("e" * 20, "f" * 20)
        store.append_messages(session, later)
        second = store.compact(session, summarize, TEN_KEPT)
        assert summarize.requests[1] == SummaryRequest(
            previous_summary="summary 1", messages=messages[2:], max_tokens=4_096
        )
        [message] = store.get_context(session).messages
        assert "summary 2" in message["content"]
        assert "summary 1" not in message["content"]
        assert "e" * 20 in message["content"]
        assert first is not None
        assert second is not None
        numbers = seqs(store, session)
        assert (first.from_seq, first.to_seq) == (numbers[0], numbers[3])
        assert (second.from_seq, second.to_seq) == (numbers[4], numbers[5])
        assert store.list_compactions(session) == [first, second]

    def test_nothing_older_is_nothing_to_do(self, store: SessionStore, session: str) -> None:
        before = dump()
        assert store.compact(session, Summarizer(), NOTHING_KEPT) is None
        assert dump() == before
        store.append_messages(session, said("a", "b"))
        before = dump()
        assert store.compact(session, Summarizer(), CompactionPolicy(1)) is None
        assert dump() == before
        store.compact(session, Summarizer(), NOTHING_KEPT)
        before = dump()
        assert store.compact(session, Summarizer(), NOTHING_KEPT) is None
        assert dump() == before

    def test_a_question_that_waits_is_not_left_to_the_summary(
        self, store: SessionStore, session: str
    ) -> None:
        messages = said("a", "b", "q" * 400)
        store.append_messages(session, messages)
        summarize = Summarizer()
        store.compact(session, summarize, TEN_KEPT)
        assert summarize.requests[0].messages == messages[:2]
        assert "q" * 400 in store.get_context(session).messages[0]["content"]

    def test_a_call_is_not_parted_from_its_results(self, store: SessionStore, session: str) -> None:
        messages = [*said("a"), call("1", "2"), result("1"), result("2", "x" * 20)]
        store.append_messages(session, messages)
        summarize = Summarizer()
        assert store.compact(session, summarize, TEN_KEPT)
        assert summarize.requests[0].messages == messages

    def test_an_open_call_stays_as_it_is(self, store: SessionStore, session: str) -> None:
        messages = [*said("a", "b"), call("1", "2"), result("1")]
        store.append_messages(session, messages)
        store.compact(session, Summarizer(), NOTHING_KEPT)
        assert store.get_context(session).messages[1:] == messages[2:]
        store.append_messages(session, [result("2")])
        assert store.get_context(session).messages[1:] == [*messages[2:], result("2")]

    def test_an_open_call_first_leaves_nothing(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, [call("1"), *said("a", "b")])
        assert store.compact(session, Summarizer(), NOTHING_KEPT) is None

    def test_long_results_are_cut(self, store: SessionStore, session: str) -> None:
        long = {"rows": ["x" * 30]}
        block = {"type": "tool_result", "tool_use_id": "2", "content": "y" * 30}
        messages = [
            call("1"),
            result("1", long),
            {"role": "assistant", "content": [{"type": "tool_use", "id": "2", "name": "look", "input": {}}]},
            {"role": "user", "content": [block]},
            {"role": "assistant", "content": "z" * 30},
        ]
        store.append_messages(session, messages)
        policy = CompactionPolicy(1_000, keep_recent=0, tool_output_chars=10)
        summarize = Summarizer()
        store.compact(session, summarize, policy)
        cut = summarize.requests[0].messages
        text = json.dumps(long, separators=(",", ":"))
        assert cut[1]["content"] == f"{text[:10]}\n[{len(text) - 10} more characters]"
        assert cut[3]["content"][0]["content"] == f"{'y' * 10}\n[20 more characters]"
        assert cut[4] == messages[4]
        assert store.get_messages(session).messages == messages

    def test_recent_text_tells_calls_and_results(self, store: SessionStore, session: str) -> None:
        messages = [
            *said("a" * 400, "b"),
            call("1"),
            result("1", {"found": 3}),
            {"role": "assistant", "content": [{"type": "text", "text": "three"}, {"type": "image", "id": 7}]},
        ]
        store.append_messages(session, messages)
        store.compact(session, Summarizer(), CompactionPolicy(1_000, keep_recent=90))
        [message] = store.get_context(session).messages
        for part in ('calls look {"at":"1"}', '[look] {"found":3}', "three", '"id":7', "[assistant] b"):
            assert part in message["content"]


class TestFailures:
    def test_a_failing_summarizer_leaves_only_the_started_event(
        self, store: SessionStore, session: str
    ) -> None:
        store.append_messages(session, said("a", "b"))
        seen, before = store.get_context(session), store.load_state(session)
        with pytest.raises(ZeroDivisionError):
            store.compact(session, Summarizer(ZeroDivisionError()), NOTHING_KEPT)
        [event] = store.get_events(session, before.head_seq + 1)
        assert event.type == "compaction_started"
        assert store.get_context(session) == seen
        assert store.load_state(session).version == before.version
        assert not models.Compaction.objects.exists()
        assert store.compact(session, Summarizer(), NOTHING_KEPT)

    @each("blank", ["", " \n", None])
    def test_a_blank_summary_is_none(self, store: SessionStore, session: str, blank: Any) -> None:
        store.append_messages(session, said("a", "b"))
        seen, head = store.get_context(session), store.load_state(session).head_seq
        assert store.compact(session, Summarizer(blank), NOTHING_KEPT) is None
        assert [event.type for event in store.get_events(session, head + 1)] == ["compaction_started"]
        assert store.get_context(session) == seen
        assert store.compact(session, Summarizer(), NOTHING_KEPT)

    @each(("bad", "error"), [(5, InvalidInput), ("\ud800", InvalidDocument)])
    def test_a_bad_summary_is_refused(
        self, store: SessionStore, session: str, bad: Any, error: type[Exception]
    ) -> None:
        store.append_messages(session, said("a", "b"))
        with pytest.raises(error):
            store.compact(session, Summarizer(bad), NOTHING_KEPT)
        assert store.compact(session, Summarizer(), NOTHING_KEPT)

    @each(
        "arguments",
        [
            (None, NOTHING_KEPT),
            (Summarizer(), None),
            (Summarizer(), {}),
            (Summarizer(), {"context_window": 1, "colour": 2}),
            (Summarizer(), {"context_window": "x"}),
        ],
    )
    def test_bad_arguments(self, store: SessionStore, session: str, arguments: Any) -> None:
        store.append_messages(session, said("a", "b"))
        before = dump()
        with pytest.raises(InvalidInput):
            store.compact(session, *arguments)
        with pytest.raises(InvalidInput):
            store.compact(session, Summarizer(), NOTHING_KEPT, reason="")
        with pytest.raises(StaleState):
            store.compact(session, Summarizer(), NOTHING_KEPT, expected_version=9)
        assert dump() == before

    def test_a_session_deleted_meanwhile(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, said("a", "b"))

        def delete(request: SummaryRequest) -> str:
            store.delete_session(session)
            return "too late"

        with pytest.raises(SessionNotFound):
            store.compact(session, delete, NOTHING_KEPT)


class TestMeanwhile:
    def test_a_message_appended_meanwhile_stays_visible(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, said("a", "b"))

        def append(request: SummaryRequest) -> str:
            store.append_messages(session, said("c"))
            return "summary"

        made = store.compact(session, append, NOTHING_KEPT)
        assert made is not None
        assert store.get_context(session).messages[1:] == said("c")
        assert made.to_seq == seqs(store, session)[1]

    def test_only_one_of_two_at_once_takes_effect(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, said("a", "b"))
        inner: list[Any] = []

        def again(request: SummaryRequest) -> str:
            inner.append(store.compact(session, Summarizer("inner"), NOTHING_KEPT))
            return "outer"

        made = store.compact(session, again, NOTHING_KEPT)
        assert inner == [None]
        assert made is not None
        assert made.summary == "outer"
        assert len(store.get_events(session, types=["compacted"])) == 1
        assert len(store.get_events(session, types=["compaction_started"])) == 1

    def test_one_that_takes_too_long_is_taken_over(
        self, store: SessionStore, session: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(compactions, "TIMEOUT", timedelta(0))
        store.append_messages(session, said("a", "b"))

        def again(request: SummaryRequest) -> str:
            assert store.compact(session, Summarizer("inner"), NOTHING_KEPT)
            return "outer"

        assert store.compact(session, again, NOTHING_KEPT) is None
        [made] = store.list_compactions(session)
        assert made.summary == "inner"

    def test_one_whose_process_died_is_taken_over(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, said("a", "b"))

        def die(request: SummaryRequest) -> str:
            rows = models.Compaction.objects
            holder = rows.get().holder
            assert holder is not None
            rows.update(holder=f"{holder.rpartition(':')[0]}:{2**22 + 1}")
            assert store.compact(session, Summarizer("inner"), NOTHING_KEPT)
            return "outer"

        assert store.compact(session, die, NOTHING_KEPT) is None
        assert [made.summary for made in store.list_compactions(session)] == ["inner"]

    def test_messages_truncated_meanwhile_are_not_brought_back(
        self, store: SessionStore, session: str
    ) -> None:
        store.append_messages(session, said("a", "b", "c"))

        def truncate(request: SummaryRequest) -> str:
            store.truncate_messages(session, 1)
            store.append_messages(session, said("d", "e"))
            return "summary"

        assert store.compact(session, truncate, NOTHING_KEPT) is None
        assert store.get_context(session).messages == said("a") + said("d", "e")
        assert store.compact(session, Summarizer(), NOTHING_KEPT)

    @pytest.mark.django_db(transaction=True)
    def test_no_lock_is_held_while_it_is_summarized(self, store: SessionStore, run_threads: Any) -> None:
        store.create_session("s", agent_type="writer")
        store.append_messages("s", said("a", "b"))

        def append(request: SummaryRequest) -> str:
            run_threads(2, lambda number: SessionStore().append_messages("s", said("c")))
            return "summary"

        assert store.compact("s", append, NOTHING_KEPT)
        assert store.get_context("s").messages[1:] == said("c") * 2

    @pytest.mark.django_db(transaction=True)
    def test_many_at_once(self, store: SessionStore, run_threads: Any) -> None:
        store.create_session("s", agent_type="writer")
        store.append_messages("s", said("a", "b"))
        outcomes = run_threads(6, lambda n: SessionStore().compact("s", Summarizer(f"by {n}"), NOTHING_KEPT))
        made = [outcome for outcome in outcomes if outcome is not None]
        assert store.list_compactions("s") == made
        assert len(made) == 1
        assert len(store.get_events("s", types=["compacted"])) == 1
        assert_invariants("s")


class TestTruncation:
    def test_a_compaction_of_messages_that_went_goes(self, store: SessionStore, session: str) -> None:
        messages = said("a", "b", "c", "d")
        store.append_messages(session, messages[:2])
        first = store.compact(session, Summarizer(), NOTHING_KEPT)
        store.append_messages(session, messages[2:])
        store.compact(session, Summarizer(), NOTHING_KEPT)
        store.truncate_messages(session, 3)
        assert first is not None
        assert store.list_compactions(session) == [first]
        assert store.get_context(session).messages == [first.message, messages[2]]
        store.truncate_messages(session, 1)
        assert store.list_compactions(session) == []
        assert store.get_context(session).messages == messages[:1]
        store.append_messages(session, messages[1:])
        third = store.compact(session, Summarizer(), NOTHING_KEPT)
        assert third is not None
        assert store.list_compactions(session) == [third]
        assert_invariants(session)

    def test_one_before_it_stays(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, said("a", "b"))
        made = store.compact(session, Summarizer(), NOTHING_KEPT)
        store.append_messages(session, said("c", "d"))
        store.truncate_messages(session, 2)
        assert made is not None
        assert store.get_context(session).messages == [made.message]

    def test_a_rewind_brings_the_messages_and_not_the_compaction(
        self, store: SessionStore, session: str
    ) -> None:
        store.append_messages(session, said("a", "b"))
        store.create_checkpoint(session)
        store.append_messages(session, said("c", "d"))
        store.compact(session, Summarizer(), NOTHING_KEPT)
        store.rewind(session)
        assert store.get_context(session).messages == said("a", "b")

    def test_a_branch_copies_what_fits(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, said("a", "b"))
        first = store.compact(session, Summarizer(), NOTHING_KEPT)
        store.append_messages(session, said("c", "d"))
        second = store.compact(session, Summarizer(), NOTHING_KEPT)
        assert first is not None
        assert second is not None
        store.clone_session(session, "whole")
        store.clone_session(session, "part", message_count=3)
        assert store.get_context("whole") == store.get_context(session)
        assert store.get_context("part").messages == [first.message, *said("c")]
        numbers = seqs(store, "whole")
        copies = store.list_compactions("whole")
        assert [(copy.from_seq, copy.to_seq) for copy in copies] == [
            (numbers[0], numbers[1]),
            (numbers[2], numbers[3]),
        ]
        assert [copy.summary for copy in copies] == [first.summary, second.summary]
        store.append_messages("whole", said("e", "f"))
        summarize = Summarizer("third")
        assert store.compact("whole", summarize, NOTHING_KEPT)
        assert summarize.requests[0].previous_summary == "summary 1"
        assert store.list_compactions(session) == [first, second]


class TestPolicy:
    def context(self, size: int) -> ModelContext:
        return ModelContext(baseline="x" * size * 4, messages=[])

    @each(
        ("policy", "budget"),
        [
            (CompactionPolicy(100, buffer=20), 80),
            (CompactionPolicy(100, buffer=20, output_tokens=30), 70),
            (CompactionPolicy(100_000), 80_000),
        ],
    )
    def test_due_when_the_estimate_exceeds_the_budget(self, policy: CompactionPolicy, budget: int) -> None:
        assert not policy.due(self.context(budget))
        assert policy.due(self.context(budget + 1))

    def test_without_a_window_never(self) -> None:
        assert not CompactionPolicy(None, buffer=0).due(self.context(10**6))

    def test_any_estimate_will_do(self) -> None:
        policy = CompactionPolicy(10, buffer=0, estimate=lambda context: 11)
        assert policy.due(self.context(0))

    def test_defaults(self) -> None:
        policy = CompactionPolicy(5)
        assert (policy.output_tokens, policy.buffer, policy.keep_recent) == (0, 20_000, 8_000)
        assert (policy.tool_output_chars, policy.summary_tokens, policy.auto) == (2_000, 4_096, True)
        assert policy.estimate is chars_over_four

    @each("bad", [{"buffer": -1}, {"keep_recent": "x"}, {"estimate": 1}, {"buffer": True}])
    def test_bad_values(self, bad: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput):
            CompactionPolicy(5, **bad)

    def test_the_default_estimate(self) -> None:
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "x" * 400},
            {"role": "assistant", "content": None},
        ]
        assert chars_over_four(ModelContext(baseline="y" * 40, messages=messages)) == 111


@pytest.mark.django_db(transaction=True)
def test_an_async_summarizer(astore: AsyncSessionStore) -> None:
    async def summarize(request: SummaryRequest) -> str:
        return f"{len(request.messages)} messages"

    async def scene() -> Compaction | None:
        await astore.create_session("s", agent_type="writer")
        await astore.append_messages("s", said("a", "b"))
        return await astore.compact("s", summarize, NOTHING_KEPT)

    made = async_to_sync(scene)()
    assert made is not None
    assert made.summary == "2 messages"


transcripts = st.lists(
    st.one_of(
        st.just({"role": "user", "content": "q"}),
        st.just({"role": "assistant", "content": "a" * 30}),
        st.lists(st.sampled_from("123"), min_size=1, max_size=3).map(lambda ids: call(*ids)),
        st.sampled_from("123").map(result),
    ),
    max_size=14,
)


@given(transcript=transcripts, keep=st.integers(0, 40))
def test_whatever_the_transcript_no_call_is_parted_from_its_result(
    transcript: list[dict[str, Any]], keep: int
) -> None:
    """Of the messages in the summary, in the text, and left alone, each part has the results of its calls."""
    lines = [PlacedMessage(position, position, message) for position, message in enumerate(transcript)]
    fold = compaction_plan.fold(lines, CompactionPolicy(1, keep_recent=keep))
    if fold is None:
        return
    folded = [*fold.older, *fold.recent]
    assert folded == lines[: len(folded)]
    for part in (fold.older, fold.recent):
        assert open_tool_calls(line.message for line in part) == []
    answered_late = _results_of_earlier_calls(transcript, len(fold.older), len(folded))
    assert answered_late == []


def _results_of_earlier_calls(transcript: list[dict[str, Any]], *cuts: int) -> list[tuple[int, int]]:
    """Pairs of positions (call, result) with a cut between them, by the rule that a result answers the
    earliest open call of its id."""
    open_at: dict[str, list[int]] = {}
    pairs = []
    for position, message in enumerate(transcript):
        for made in calls_in(message):
            open_at.setdefault(made["id"], []).append(position)
        for call_id in results_in(message):
            if open_at.get(call_id):
                pairs.append((open_at[call_id].pop(0), position))
    return [pair for pair in pairs if any(pair[0] < cut <= pair[1] for cut in cuts)]


def test_a_result_of_exactly_the_length_is_whole(store: SessionStore, session: str) -> None:
    policy = CompactionPolicy(1_000, keep_recent=0, tool_output_chars=10)
    store.append_messages(
        session, [*said("look"), call("a", "b"), result("a", "x" * 10), result("b", "x" * 11)]
    )
    summarize = Summarizer("seen")
    store.compact(session, summarize, policy)

    whole, cut = summarize.requests[0].messages[-2:]
    assert whole["content"] == "x" * 10
    assert cut["content"].startswith("x" * 10 + "\n")


def test_one_whose_owner_was_fenced_is_taken_over(store: SessionStore, session: str) -> None:
    store.append_messages(session, said("a", "b"))
    inner: list[Compaction | None] = []

    def summarize(request: SummaryRequest) -> str:
        assert store.compact(session, Summarizer("too early"), NOTHING_KEPT) is None
        store.acquire_lease(session, "another", 30)
        inner.append(store.compact(session, Summarizer("of the next owner"), NOTHING_KEPT))
        return "of who was fenced"

    assert store.compact(session, summarize, NOTHING_KEPT) is None
    [made] = store.list_compactions(session)
    assert (made, made.summary) == (inner[0], "of the next owner")


def test_who_was_taken_over_finishes_nothing_of_another(store: SessionStore, session: str) -> None:
    """Also where the other began under the number that was its own."""
    store.append_messages(session, said("a", "b"))
    rows = models.Compaction.objects.filter(session_id=session)

    def summarize(request: SummaryRequest) -> str:
        rows.update(started_seq=F("started_seq") + 100)
        return "of who was taken over"

    assert store.compact(session, summarize, NOTHING_KEPT) is None
    assert rows.get().compacted_seq is None
    assert store.list_compactions(session) == []


def test_one_of_a_session_that_was_moved_is_taken_over(store: SessionStore, session: str) -> None:
    store.append_messages(session, said("a", "b"))

    def summarize(request: SummaryRequest) -> str:
        store.move_session(session, {"at": "elsewhere"})
        assert store.compact(session, Summarizer("there"), NOTHING_KEPT) is not None
        return "here"

    assert store.compact(session, summarize, NOTHING_KEPT) is None
    assert [made.summary for made in store.list_compactions(session)] == ["there"]


def test_updates_of_the_context_alone_are_not_summarized(store: SessionStore, session: str) -> None:
    for day in (1, 2, 3):
        store.reconcile_context(session, [Said("day", day)])
    summarize = Summarizer()

    assert store.compact(session, summarize, NOTHING_KEPT) is None
    assert summarize.requests == []
