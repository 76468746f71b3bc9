"""Context epochs: what the model was told, and how it is told what changes."""

from typing import Any

import pytest

from helix_sessions import models
from helix_sessions.exceptions import ContextUnavailable, InvalidDocument, InvalidInput, StaleState
from helix_sessions.store import SessionStore
from helix_sessions.types import (
    UNAVAILABLE,
    CompactionPolicy,
    ContextEpoch,
    ContextOutcome,
    ModelContext,
)
from tests.contract.sources import Said
from tests.invariants import assert_invariants, dump
from tests.rows import each

pytestmark = pytest.mark.django_db

ALL = CompactionPolicy(1_000, keep_recent=0)


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for text in texts]


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def compact(store: SessionStore, session: str) -> Any:
    return store.compact(session, lambda request: "summary", ALL)


def types_after(store: SessionStore, session: str, seq: int) -> list[str]:
    return [event.type for event in store.get_events(session, seq + 1)]


class TestTheFirstTime:
    def test_every_source_available_makes_the_baseline(self, store: SessionStore, session: str) -> None:
        outcome = store.reconcile_context(session, [Said("place", "Rome"), Said("day", 1)])
        head = store.load_state(session).head_seq
        assert outcome == ContextOutcome(
            kind="initialized",
            epoch=ContextEpoch(
                baseline="place is Rome.\n\nday is 1.",
                snapshot={"place": "Rome", "day": 1},
                baseline_seq=head,
            ),
        )
        assert store.get_context_epoch(session) == outcome.epoch
        assert store.get_context(session).baseline == outcome.epoch.baseline

    def test_it_is_one_write(self, store: SessionStore, session: str) -> None:
        before = store.load_state(session)
        store.reconcile_context(session, [Said("day", 1)])
        assert store.load_state(session).version == before.version + 1
        [event] = store.get_events(session, before.head_seq + 1)
        assert (event.type, event.data) == (
            "context_initialized",
            {"baseline": "day is 1.", "snapshot": {"day": 1}},
        )
        assert_invariants(session)

    def test_one_unavailable_source_changes_nothing(self, store: SessionStore, session: str) -> None:
        before = dump()
        with pytest.raises(ContextUnavailable) as refusal:
            store.reconcile_context(session, [Said("place", "Rome"), Said("day"), Said("hour")])
        assert refusal.value.keys == ("day", "hour")
        assert dump() == before

    def test_null_is_a_value(self, store: SessionStore, session: str) -> None:
        assert store.reconcile_context(session, [Said("day", None)]).epoch.snapshot == {"day": None}

    def test_no_sources_are_an_empty_baseline(self, store: SessionStore, session: str) -> None:
        outcome = store.reconcile_context(session, [])
        assert (outcome.kind, outcome.epoch.baseline) == ("initialized", "")

    def test_sources_see_the_session(self, store: SessionStore, session: str) -> None:
        source = Said("day", 1)
        store.reconcile_context(session, [source])
        [state] = source.asked
        assert (state.session_id, state.agent_type) == (session, "writer")

    def test_without_an_epoch_the_baseline_is_empty(self, store: SessionStore, session: str) -> None:
        assert store.get_context(session) == ModelContext(baseline="", messages=[], estimated_tokens=0)
        assert store.get_context_epoch(session) is None


class TestLater:
    @pytest.fixture
    def sources(self, store: SessionStore, session: str) -> list[Said]:
        sources = [Said("place", "Rome"), Said("day", 1), Said("hour", 5)]
        store.reconcile_context(session, sources)
        store.append_messages(session, said("hello"))
        return sources

    def test_nothing_changed_writes_nothing(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        epoch, before = store.get_context_epoch(session), dump()
        assert epoch is not None
        assert store.reconcile_context(session, sources) == ContextOutcome(kind="unchanged", epoch=epoch)
        assert dump() == before

    def test_a_change_is_a_system_message(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        baseline, head = store.get_context(session).baseline, store.load_state(session).head_seq
        sources[1].value = 2
        outcome = store.reconcile_context(session, sources)
        assert outcome.kind == "updated"
        assert outcome.epoch.snapshot == {"place": "Rome", "day": 2, "hour": 5}
        assert outcome.epoch.baseline.encode() == baseline.encode()
        update = system("day was 1 and is 2.")
        assert store.get_messages(session).messages == [*said("hello"), update]
        assert store.get_context(session).messages == [*said("hello"), update]
        assert types_after(store, session, head) == ["system_message", "context_updated"]
        [event] = store.get_events(session, types=["context_updated"])
        assert event.data == {"message_seq": head + 1, "changes": {"day": {"from": 1, "to": 2}}}
        assert store.reconcile_context(session, sources).kind == "unchanged"
        assert_invariants(session)

    def test_all_changes_are_one_message_in_source_order(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        version = store.load_state(session).version
        place, day, _ = sources
        place.value, day.value = "Oslo", 2
        outcome = store.reconcile_context(session, [Said("mood", "good"), day, place])
        assert store.get_messages(session).messages[1:] == [
            system(
                "mood is good.\n\nday was 1 and is 2.\n\nplace was Rome and is Oslo.\n\nhour is no longer 5."
            )
        ]
        assert outcome.epoch.snapshot == {"mood": "good", "day": 2, "place": "Oslo"}
        assert store.load_state(session).version == version + 1
        assert len(store.get_events(session, types=["context_updated"])) == 1

    def test_an_unavailable_source_keeps_its_value(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        sources[0].value, sources[1].value = UNAVAILABLE, 2
        outcome = store.reconcile_context(session, sources)
        assert outcome.epoch.snapshot == {"place": "Rome", "day": 2, "hour": 5}
        assert store.get_messages(session).messages[1:] == [system("day was 1 and is 2.")]

    def test_a_new_source_is_told_of_once_it_is_available(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        mood = Said("mood")
        assert store.reconcile_context(session, [*sources, mood]).kind == "unchanged"
        mood.value = "good"
        assert store.reconcile_context(session, [*sources, mood]).kind == "updated"
        assert store.get_messages(session).messages[1:] == [system("mood is good.")]

    @each(("old", "new"), [(1, True), (0, False), (1, 1.0), ({"a": 1}, {"a": 2}), (None, 0)])
    def test_values_differ_as_documents_do(
        self, store: SessionStore, session: str, sources: list[Said], old: Any, new: Any
    ) -> None:
        sources[1].value = old
        store.reconcile_context(session, sources)
        sources[1].value = new
        assert store.reconcile_context(session, sources).kind == "updated"

    def test_the_order_of_keys_is_no_change(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        sources[1].value = {"a": 1, "b": (2, 3)}
        store.reconcile_context(session, sources)
        sources[1].value = {"b": [2, 3], "a": 1}
        assert store.reconcile_context(session, sources).kind == "unchanged"

    def test_a_change_without_a_text_is_no_message(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        sources[1].update = lambda old, new: ""  # type: ignore[method-assign]
        sources[1].value = 2
        outcome = store.reconcile_context(session, sources)
        assert (outcome.kind, outcome.epoch.snapshot["day"]) == ("updated", 2)
        assert store.get_message_count(session) == 1
        assert store.get_events(session, types=["context_updated"])[0].data["message_seq"] is None
        assert_invariants(session)

    def test_what_came_back_is_added(self, store: SessionStore, session: str, sources: list[Said]) -> None:
        store.reconcile_context(session, sources[:2])
        store.reconcile_context(session, sources)
        assert store.get_messages(session).messages[1:] == [
            system("hour is no longer 5."),
            system("hour is 5."),
        ]

    def test_baselines_are_the_same_bytes_on_every_turn(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        baselines = set()
        for day in range(2, 6):
            sources[1].value = day
            store.reconcile_context(session, sources)
            store.append_messages(session, said(f"turn {day}"))
            baselines.add(store.get_context(session).baseline.encode())
        assert baselines == {b"place is Rome.\n\nday is 1.\n\nhour is 5."}


class TestAfterACompaction:
    @pytest.fixture
    def sources(self, store: SessionStore, session: str) -> list[Said]:
        sources = [Said("place", "Rome"), Said("day", 1)]
        store.reconcile_context(session, sources)
        store.append_messages(session, said("a"))
        sources[1].value = 2
        store.reconcile_context(session, sources)
        store.append_messages(session, said("b"))
        compact(store, session)
        return sources

    def test_updates_stay_until_the_baseline_has_them(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        store.append_messages(session, said("c"))
        context = store.get_context(session)
        assert context.baseline == "place is Rome.\n\nday is 1."
        assert context.messages[0]["kind"] == "compaction"
        assert context.messages[1:] == [system("day was 1 and is 2."), *said("c")]

    def test_the_baseline_is_rendered_afresh(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        head = store.load_state(session).head_seq
        outcome = store.reconcile_context(session, sources)
        assert (outcome.kind, outcome.epoch.baseline) == ("replaced", "place is Rome.\n\nday is 2.")
        assert outcome.epoch.baseline_seq == head + 1
        assert types_after(store, session, head) == ["context_replaced"]
        context = store.get_context(session)
        assert [message.get("kind") for message in context.messages] == ["compaction"]
        assert store.reconcile_context(session, sources).kind == "unchanged"
        assert_invariants(session)

    def test_even_when_nothing_changed(self, store: SessionStore, session: str, sources: list[Said]) -> None:
        store.reconcile_context(session, sources)
        store.append_messages(session, said("c"))
        compact(store, session)
        before = store.get_context_epoch(session)
        after = store.reconcile_context(session, sources)
        assert before is not None
        assert (after.kind, after.epoch.baseline) == ("replaced", before.baseline)
        assert after.epoch.baseline_seq > before.baseline_seq

    def test_sources_that_are_gone_leave_no_trace(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        outcome = store.reconcile_context(session, [sources[1], Said("mood", "good")])
        assert outcome.epoch.baseline == "day is 2.\n\nmood is good."
        assert outcome.epoch.snapshot == {"day": 2, "mood": "good"}
        assert len(store.get_context(session).messages) == 1

    def test_an_unavailable_source_blocks_it(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        sources[0].value = UNAVAILABLE
        before, seen = dump(), store.get_context(session)
        outcome = store.reconcile_context(session, sources)
        assert (outcome.kind, outcome.epoch) == ("blocked", store.get_context_epoch(session))
        assert dump() == before
        assert store.get_context(session) == seen
        sources[0].value = "Rome"
        assert store.reconcile_context(session, sources).kind == "replaced"

    def test_while_it_is_blocked_changes_are_still_told(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        sources[0].value, sources[1].value = UNAVAILABLE, 3
        outcome = store.reconcile_context(session, sources)
        assert (outcome.kind, outcome.epoch.snapshot) == ("blocked", {"place": "Rome", "day": 3})
        assert outcome.epoch.baseline == "place is Rome.\n\nday is 1."
        assert store.get_context(session).messages[1:] == [
            system("day was 1 and is 2."),
            system("day was 2 and is 3."),
        ]
        sources[0].value = "Rome"
        store.reconcile_context(session, sources)
        assert len(store.get_context(session).messages) == 1

    def test_other_system_messages_are_never_hidden(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        store.append_messages(session, [system("be brief")])
        store.reconcile_context(session, sources)
        assert store.get_context(session).messages[1:] == [system("be brief")]


class TestWhenMessagesGo:
    @pytest.fixture
    def sources(self, store: SessionStore, session: str) -> list[Said]:
        sources = [Said("day", 1)]
        store.append_messages(session, said("a"))
        store.reconcile_context(session, sources)
        for day in (2, 3):
            sources[0].value = day
            store.reconcile_context(session, sources)
        return sources

    def test_an_update_that_went_is_told_again(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        store.truncate_messages(session, 2)
        epoch = store.get_context_epoch(session)
        assert epoch is not None
        assert epoch.snapshot == {"day": 2}
        assert store.reconcile_context(session, sources).kind == "updated"
        assert store.get_context(session).messages == [
            *said("a"),
            system("day was 1 and is 2."),
            system("day was 2 and is 3."),
        ]

    def test_all_of_them(self, store: SessionStore, session: str, sources: list[Said]) -> None:
        store.truncate_messages(session, 0)
        epoch = store.get_context_epoch(session)
        assert epoch is not None
        assert epoch.snapshot == {"day": 1}
        assert store.get_context(session) == ModelContext(
            baseline="day is 1.", messages=[], estimated_tokens=2
        )
        store.reconcile_context(session, sources)
        assert store.get_context(session).messages == [system("day was 1 and is 3.")]

    def test_what_the_baseline_says_stays_known(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        compact(store, session)
        store.reconcile_context(session, sources)
        store.truncate_messages(session, 1)
        epoch = store.get_context_epoch(session)
        assert epoch is not None
        assert (epoch.baseline, epoch.snapshot) == ("day is 3.", {"day": 3})
        assert store.get_context(session).messages == said("a")
        assert store.reconcile_context(session, sources).kind == "unchanged"

    def test_messages_that_come_back_are_updates_again(
        self, store: SessionStore, session: str, sources: list[Said]
    ) -> None:
        store.create_checkpoint(session)
        messages = store.get_messages(session).messages
        store.truncate_messages(session, 0)
        store.rewind(session)
        assert store.get_messages(session).messages == messages
        store.append_messages(session, said("b"))
        compact(store, session)
        store.reconcile_context(session, sources)
        assert len(store.get_context(session).messages) == 1
        assert_invariants(session)


class TestBranches:
    def test_a_branch_sees_what_its_source_saw(self, store: SessionStore, session: str) -> None:
        sources = [Said("place", "Rome"), Said("day", 1)]
        store.append_messages(session, said("a", "b"))
        store.reconcile_context(session, sources)
        compact(store, session)
        sources[0].value, sources[1].value = UNAVAILABLE, 2
        store.reconcile_context(session, sources)
        store.append_messages(session, said("c"))
        seen = store.get_context(session)
        store.clone_session(session, "branch")
        assert store.get_context("branch") == seen
        sources[0].value = "Rome"
        assert store.reconcile_context("branch", sources).kind == "replaced"
        assert store.get_context("branch").messages == [seen.messages[0], *said("c")]
        assert store.get_context(session) == seen
        assert_invariants("branch")

    def test_a_branch_knows_only_its_own_updates(self, store: SessionStore, session: str) -> None:
        source = Said("day", 1)
        store.reconcile_context(session, [source])
        for day in (2, 3):
            source.value = day
            store.reconcile_context(session, [source])
        store.clone_session(session, "branch", message_count=1)
        epoch = store.get_context_epoch("branch")
        assert epoch is not None
        assert (epoch.baseline, epoch.snapshot) == ("day is 1.", {"day": 2})
        assert store.get_context("branch").messages == [system("day was 1 and is 2.")]
        store.truncate_messages("branch", 0)
        assert store.reconcile_context("branch", [source]).epoch.snapshot == {"day": 3}
        assert store.get_context("branch").messages == [system("day was 1 and is 3.")]

    def test_updates_the_baseline_has_stay_hidden(self, store: SessionStore, session: str) -> None:
        source = Said("day", 1)
        store.reconcile_context(session, [source])
        store.append_messages(session, said("a"))
        source.value = 2
        store.reconcile_context(session, [source])
        compact(store, session)
        store.reconcile_context(session, [source])
        store.clone_session(session, "branch", message_count=2)
        assert len(store.get_context("branch").messages) == 1
        store.clone_session(session, "short", message_count=1)
        assert store.get_context("short").messages == said("a")
        assert store.get_context("short").baseline == "day is 2."
        assert store.reconcile_context("short", [source]).kind == "unchanged"
        compact(store, "short")
        assert store.reconcile_context("short", [source]).kind == "replaced"

    def test_without_messages(self, store: SessionStore, session: str) -> None:
        store.reconcile_context(session, [Said("day", 1)])
        store.clone_session(session, "branch")
        assert store.reconcile_context("branch", [Said("day", 1)]).kind == "unchanged"


class TestMove:
    def test_it_sets_the_location_and_forgets_the_epoch(self, store: SessionStore, session: str) -> None:
        source = Said("place", "Rome")
        store.reconcile_context(session, [source])
        before = store.load_state(session)
        state = store.move_session(session, {"host": "b"})
        assert state == store.load_state(session)
        assert state.location == {"host": "b"}
        assert state.version == before.version + 1
        assert store.get_context_epoch(session) is None
        [event] = store.get_events(session, before.head_seq + 1)
        assert (event.type, event.data) == ("session_moved", {"from": None, "to": {"host": "b"}})
        source.value = "Oslo"
        assert store.reconcile_context(session, [source]).kind == "initialized"
        assert store.get_context(session).baseline == "place is Oslo."
        assert_invariants(session)

    def test_updates_of_the_old_place_are_not_seen(self, store: SessionStore, session: str) -> None:
        source = Said("place", "Rome")
        store.reconcile_context(session, [source])
        source.value = "Turin"
        store.reconcile_context(session, [source])
        store.append_messages(session, said("a"))
        store.move_session(session, "b")
        assert store.get_context(session).messages == said("a")
        store.clone_session(session, "branch")
        assert store.get_context("branch").messages == said("a")
        store.reconcile_context(session, [source])
        assert store.get_context(session).messages == said("a")

    def test_a_stale_version_moves_nothing(self, store: SessionStore, session: str) -> None:
        before = dump()
        with pytest.raises(StaleState):
            store.move_session(session, "b", expected_version=7)
        assert dump() == before


class TestBadSources:
    @each(
        "sources",
        [None, "x", [None], [object()], [Said("")], [Said("a\n", 1)], [Said("a", 1), Said("a", 2)], 5],
    )
    def test_are_refused_before_anything_is_asked(
        self, store: SessionStore, session: str, sources: Any
    ) -> None:
        before = dump()
        with pytest.raises(InvalidInput):
            store.reconcile_context(session, sources)
        assert dump() == before

    @each("value", [float("nan"), object(), {1: 2}, "\ud800"])
    def test_a_value_is_a_document(self, store: SessionStore, session: str, value: Any) -> None:
        before = dump()
        with pytest.raises(InvalidDocument):
            store.reconcile_context(session, [Said("day", value)])
        assert dump() == before

    def test_a_text_is_a_text(self, store: SessionStore, session: str) -> None:
        source = Said("day", 1)
        source.baseline = lambda value: 5  # type: ignore[method-assign, assignment, return-value]
        with pytest.raises(InvalidInput, match="baseline"):
            store.reconcile_context(session, [source])
        source.baseline = lambda value: "\ud800"  # type: ignore[method-assign]
        with pytest.raises(InvalidDocument):
            store.reconcile_context(session, [source])

    def test_what_a_source_raises_is_raised(self, store: SessionStore, session: str) -> None:
        source = Said("day", 1)
        source.observe = lambda session: 1 / 0  # type: ignore[method-assign]
        with pytest.raises(ZeroDivisionError):
            store.reconcile_context(session, [source])

    def test_any_character_comes_back(self, store: SessionStore, session: str) -> None:
        store.reconcile_context(session, [Said("day", "\x00é\u2028")])
        assert store.get_context(session).baseline == "day is \x00é\u2028."

    def test_an_expected_version_is_compared(self, store: SessionStore, session: str) -> None:
        with pytest.raises(StaleState):
            store.reconcile_context(session, [Said("day", 1)], expected_version=7)
        store.reconcile_context(session, [Said("day", 1)], expected_version=1)
        with pytest.raises(StaleState):
            store.reconcile_context(session, [Said("day", 1)], expected_version=1)


def test_a_deleted_session_leaves_nothing(store: SessionStore, session: str) -> None:
    source = Said("day", 1)
    store.reconcile_context(session, [source])
    source.value = 2
    store.reconcile_context(session, [source])
    compact(store, session)
    store.delete_session(session)
    kinds = (models.ContextEpoch, models.ContextUpdate, models.Compaction)
    assert not any(kind.objects.exists() for kind in kinds)


def test_of_two_that_see_a_change_at_once_one_tells_it(store: SessionStore, session: str) -> None:
    store.reconcile_context(session, [Said("day", 1)])

    class Slow(Said):
        """While it is asked what to say, another reconciliation says it."""

        def update(self, old: Any, new: Any) -> str:
            store.reconcile_context(session, [Said("day", 2)])
            return super().update(old, new)

    outcome = store.reconcile_context(session, [Slow("day", 2)])

    assert outcome.kind == "unchanged"
    assert store.get_context(session).messages == [system("day was 1 and is 2.")]
