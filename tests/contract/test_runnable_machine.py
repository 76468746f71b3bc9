"""Whatever is decided, answered, asked for and given up, `runnable_at` says what the causes say.

The model knows only what was done: no rule of it looks at the store's row.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import wraps
from itertools import count
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from helix_sessions.exceptions import Fenced, RunEnded
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.types import Lease, SubSessionRef
from tests.contract.suspended import asked, calling, wait_for
from tests.invariants import assert_healthy
from tests.lengths import at_length

pytestmark = pytest.mark.django_db(transaction=True)

STOPPED = ("failed", "interrupted", "paused")
STATUSES = ("active", "completed", *STOPPED)
LATER = timedelta(hours=5)
EXAMPLES = count()
"""Sessions of one example have names of their own, so that no table has to be emptied."""


@dataclass
class Known:
    """What was done to one session."""

    status: str = "active"
    run: str | None = None
    lease: Lease | None = None
    pending: list[str] = field(default_factory=list)
    looked_for: bool = False
    """Its inbox is to be looked at."""
    requested: str | None = None
    """`now` or `later`."""
    unanswered: set[str] = field(default_factory=set)
    children: dict[str, str] = field(default_factory=dict)
    """The calls that wait for a child, by the child's id."""
    has_answers: bool = False

    @property
    def waits(self) -> bool:
        return bool(self.unanswered or self.children)

    def runnable(self) -> str | None:
        if self.run is not None:
            return "owner"
        if self.waits:
            return None
        if self.looked_for or (self.has_answers and self.status == "active"):
            return "now"
        return self.requested

    @property
    def rests_with_inputs(self) -> bool:
        """It has inputs that were only admitted."""
        rests = self.run is None and self.runnable() is None and self.status not in STOPPED
        return rests and bool(self.pending) and not self.waits

    def stop(self) -> None:
        self.run = self.lease = None

    def follow(self, *, rested: bool = False) -> None:
        """Its run has ended, or its status has changed. `rested`: it rests with its inputs."""
        if self.run is None:
            self.looked_for = bool(self.pending) and self.status not in STOPPED and not rested


def runs(known: Known) -> bool:
    return known.run is not None


def can_begin(known: Known) -> bool:
    if known.run is not None or known.waits:
        return False
    return not known.has_answers or known.status in ("active", "paused", "interrupted")


def of_one(where: Callable[[Known], bool]) -> Callable[[Any], Any]:
    """A rule about a session of which this is so: its id, and what is known of it."""

    def decorate(method: Any) -> Any:
        @wraps(method)
        def act(self: "Causes", data: Any, **drawn: Any) -> None:
            key = data.draw(st.sampled_from([key for key, known in self.known.items() if where(known)]))
            method(self, key, self.known[key], **drawn)

        del act.__wrapped__  # Hypothesis looks at the arguments
        return precondition(lambda self: any(map(where, self.known.values())))(act)

    return decorate


class Causes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = SessionStore()
        self.example = next(EXAMPLES)
        self.names = count()
        self.known: dict[str, Known] = {}
        self.parents: dict[str, str] = {}
        self.lost: list[Lease] = []
        self._add(f"top-{self.example}")

    def _add(self, key: str, parent: str | None = None) -> None:
        self.store.create_session(key, agent_type=f"type-{self.example}", parent_session_id=parent)
        self.known[key] = Known()

    def _name(self, kind: str) -> str:
        return f"{kind}{next(self.names)}-{self.example}"

    def _driver(self, known: Known) -> SessionStore:
        return self.store if known.lease is None else self.store.fenced(known.lease)

    @rule(data=st.data(), resume=st.booleans())
    @of_one(lambda known: len(known.pending) < 3)
    def admit(self, key: str, known: Known, resume: bool) -> None:
        name = self._name("input")
        self.store.admit_input(key, "hello", input_id=name, resume=resume)
        known.pending.append(name)
        if resume and known.run is None and known.status != "paused":
            if not known.waits:
                known.looked_for = True
            elif known.status in STOPPED:
                known.requested = "now"

    @rule(data=st.data())
    @of_one(lambda known: bool(known.pending))
    def cancel(self, key: str, known: Known) -> None:
        self.store.cancel_input(key, known.pending.pop())
        known.looked_for = known.looked_for and bool(known.pending)

    @rule(data=st.data(), later=st.booleans(), retry=st.booleans())
    @of_one(lambda known: True)
    def ask(self, key: str, known: Known, later: bool, retry: bool) -> None:
        if retry:
            self.store.retry_run(key)
        else:
            self.store.request_run(key, at=timezone.now() + LATER if later else None)
        if retry or not later:
            known.requested = "now"
        elif known.requested is None:
            known.requested = "later"
        before = self.store.load_state(key)
        after = self.store.request_run(key, at=timezone.now() + 2 * LATER)
        assert after == before, "what was asked for is not asked for again"

    @rule(data=st.data(), leased=st.booleans())
    @of_one(can_begin)
    def begin(self, key: str, known: Known, leased: bool) -> None:
        if leased:
            known.lease = self.store.acquire_lease(key, "worker", 300)
        store = self._driver(known)
        if known.has_answers:
            known.run = store.resume(key).run.run_id
            known.has_answers = False
        else:
            known.run = store.begin_turn(key, message="go on").run.run_id
        known.status, known.looked_for = "active", False
        if known.requested == "now":
            known.requested = None

    @rule(data=st.data(), calls=st.integers(0, 2), children=st.integers(0, 2))
    @of_one(runs)
    def suspend(self, key: str, known: Known, calls: int, children: int) -> None:
        assert known.run is not None
        if len(self.known) > 8:
            children = 0
        calls = calls or not children
        names = [self._name(kind) for kind in ("due", "call")[:calls]]
        spawned = {self._name("child"): self._name("call") for _ in range(children)}
        for child, call in spawned.items():
            self._add(child, key)
            self.parents[child] = key
            ref = SubSessionRef(sub_session_id=child, agent_type="a", parent_tool_call_id=call)
            self.store.add_sub_session_refs(key, [ref])
        self._fail_running_below(key, spared=set(spawned))
        store = self._driver(known)
        store.suspend(
            key,
            "step_partial",
            state=store.load_state(key),
            run_id=known.run,
            append_messages=[calling(*names, *spawned.values())],
            pending_calls=[asked(name, deadline=timezone.now() if "due" in name else None) for name in names],
            awaiting_children=[wait_for(call, child) for child, call in spawned.items()],
        )
        known.run, known.status = None, "active"
        known.unanswered, known.children, known.has_answers = set(names), dict(spawned), True
        known.follow()

    def _fail_running_below(self, key: str, spared: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        for child in self._below(key, spared):
            below = self.known[child]
            if below.run is not None:
                self._fail_running_below(child)
                self._stop(below, "failed")

    def _below(self, key: str, spared: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
        return [child for child, parent in self.parents.items() if parent == key and child not in spared]

    @rule(data=st.data())
    @of_one(lambda known: bool(known.unanswered))
    def answer(self, key: str, known: Known) -> None:
        call = sorted(known.unanswered)[0]
        assert self.store.submit_tool_result(key, call, result=1).outcome == "accepted"
        known.unanswered.discard(call)

    @precondition(lambda self: any(known.children for known in self.known.values()))
    @rule(data=st.data(), status=st.sampled_from(("completed", "failed")))
    def settle(self, data: Any, status: str) -> None:
        """A child's end is reported."""
        awaited = [child for known in self.known.values() for child in known.children]
        key = data.draw(st.sampled_from(awaited))
        known = self.known[key]
        rested = known.rests_with_inputs
        self.store.settle_child(key, status, output=1)
        if known.lease is not None:
            self.lost.append(known.lease)
            known.stop()
        self._enter(key, status, rested=rested)

    @rule(data=st.data())
    @of_one(lambda known: any(name.startswith("due") for name in known.unanswered))
    def pass_deadlines(self, key: str, known: Known) -> None:
        self.store.settle_expired_calls()
        for each in self.known.values():
            each.unanswered = {name for name in each.unanswered if not name.startswith("due")}

    @rule(data=st.data(), status=st.sampled_from(("completed", "failed", "interrupted")))
    @of_one(runs)
    def end(self, key: str, known: Known, status: str) -> None:
        """The driver ends its run, and its session with it."""
        before = known.status
        assert known.run is not None
        run, known.run = known.run, None
        self._driver(known).end_run(key, run, status)
        if before == "active":
            self._enter(key, status)
        else:
            known.follow()

    @rule(data=st.data(), status=st.sampled_from(STATUSES), by_cas=st.booleans())
    @of_one(lambda known: True)
    def decide(self, key: str, known: Known, status: str, by_cas: bool) -> None:
        """Somebody else decides."""
        run, lease, before, rested = known.run, known.lease, known.status, known.rests_with_inputs
        if by_cas:
            assert self.store.compare_and_set_status(key, [before], status)
        else:
            self.store.update_status(key, status)
        if status != "active":
            if lease is not None:
                self.lost.append(lease)
            if run is not None:
                with pytest.raises(RunEnded):
                    self.store.update_run_status(key, run, "completed")
            known.stop()
        if run is not None and status != "active":
            known.status = status
            known.follow()
        if status != before or status in STOPPED:
            self._enter(key, status, rested=rested)

    def _enter(self, key: str, status: str, *, rested: bool = False) -> None:
        known = self.known[key]
        known.status = status
        if status in STOPPED:
            known.requested = None
        if status in ("completed", "failed"):
            known.unanswered, known.children, known.has_answers = set(), {}, False
        known.follow(rested=rested)
        if status == "active" and self._is_awaited(key) and not known.waits and known.runnable() is None:
            known.requested = "now"
        if status in ("failed", "interrupted"):
            self._interrupt_below(key)
        if status in ("completed", "failed") and key in self.parents:
            self.known[self.parents[key]].children.pop(key, None)

    def _is_awaited(self, key: str) -> bool:
        return key in self.parents and key in self.known[self.parents[key]].children

    def _interrupt_below(self, key: str) -> None:
        for child in self._below(key):
            below = self.known[child]
            if below.status in ("active", "paused"):
                self._stop(below, "interrupted")
                self.known[key].children.pop(child, None)
                self._interrupt_below(child)

    def _stop(self, known: Known, status: str) -> None:
        if known.lease is not None:
            self.lost.append(known.lease)
        known.stop()
        known.status, known.requested = status, None
        if status == "failed":
            known.unanswered, known.children, known.has_answers = set(), {}, False
        known.follow()

    @rule(data=st.data(), moves=st.booleans())
    @of_one(lambda known: known.run is not None or known.lease is not None)
    def take_away(self, key: str, known: Known, moves: bool) -> None:
        """A crash recovery by hand, or another place: what was running is to run again."""
        if moves:
            self.store.move_session(key, {"host": next(self.names)})
        else:
            self.store.wake(key)
        if known.lease is not None:
            self.lost.append(known.lease)
        if known.run is not None:
            known.stop()
            if known.status == "active":
                known.requested = "now"
            known.follow()
        known.lease = None

    @rule(data=st.data())
    @of_one(lambda known: known.lease is not None)
    def release(self, key: str, known: Known) -> None:
        assert known.lease is not None
        self.store.release_lease(known.lease)
        known.lease = None

    @precondition(lambda self: self.lost)
    @rule()
    def a_stopped_driver_writes_nothing(self) -> None:
        lease = self.lost.pop()
        with pytest.raises(Fenced):
            self.store.fenced(lease).append_messages(
                lease.session_id, [{"role": "assistant", "content": "!"}]
            )

    @invariant()
    def the_fact_agrees_with_the_causes(self) -> None:
        now = timezone.now()
        for row in Session.objects.filter(session_id__in=self.known):
            known = self.known[row.session_id]
            assert (row.status, row.run_id) == (known.status, known.run), row.session_id
            assert row.pending_inputs == len(known.pending)
            said = _said(row, now)
            assert said == known.runnable(), f"{row.session_id} is runnable {said}, by its causes {known}"
            if said == "owner" and known.lease is not None:
                assert row.runnable_at == row.lease_expires_at
        listed = {
            summary.session_id for summary in self.store.list_runnable(agent_types=[f"type-{self.example}"])
        }
        driven = {key for key, known in self.known.items() if known.lease is not None}
        assert listed == {key for key, known in self.known.items() if known.runnable() == "now"} - driven

    def teardown(self) -> None:
        assert_healthy(*self.known)


def _said(row: Session, now: datetime) -> str | None:
    if row.runnable_at is None:
        return None
    if row.run_id is not None:
        return "owner"
    return "now" if row.runnable_at <= now else "later"


@pytest.mark.parametrize("count", [15, pytest.param(at_length(60), marks=pytest.mark.slow)])
def test_any_history(count: int) -> None:
    run_state_machine_as_test(
        Causes,
        settings=settings(
            max_examples=count, stateful_step_count=30, suppress_health_check=list(HealthCheck)
        ),
    )
