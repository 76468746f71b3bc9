"""What must be true when a worker that was left alone has nothing more to do, and that it comes to that."""

import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from django.db.models import Q
from django.utils import timezone

from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.types import SessionState
from tests.invariants import assert_valid_transcript

STOPPED = ("interrupted", "paused")

_LONGEST_WAIT = timedelta(seconds=10)
"""No lease and no wait for the next attempt is as long."""
_STILL_SECONDS = 30.0
_STILL_LOOKS = 30
_MOST_EVENTS = 5_000


class Progress:
    """Of all sessions, driven by one worker: they change, or wait for a time to come, and come to an end."""

    def __init__(self) -> None:
        self._rows: list[tuple[object, ...]] = []
        self._since = time.monotonic()
        self._looks = 0
        self._logged: int | None = None

    def somebody_is_to_run(self) -> bool:
        """Look; whether a session wants to run, now or later."""
        rows = list(
            Session.objects.order_by("session_id").values_list("session_id", "head_seq", "runnable_at")
        )
        wanted = [at for _, _, at in rows if at is not None]
        late = [key for key, _, at in rows if at is not None and at > timezone.now() + _LONGEST_WAIT]
        assert not late, f"a session is left alone: {told(late[0])}"
        self._looks += 1
        if rows != self._rows or (wanted and min(wanted) > timezone.now()):
            self._rows, self._since, self._looks = list(rows), time.monotonic(), 0
        stands = time.monotonic() - self._since > _STILL_SECONDS and self._looks > _STILL_LOOKS
        assert not (wanted and stands), f"nothing happens to a session that is to run: {told_of_all()}"
        logged = sum(head for _, head, _ in rows)
        self._logged = logged if self._logged is None else self._logged
        assert logged - self._logged < _MOST_EVENTS, f"there is no end: {told_of_all()}"
        return bool(wanted)


def assert_at_rest(key: str, *, ends: bool, whole: bool) -> None:
    """The session has ended, waits for a person or for the next input. `ends`: it has ended well. `whole`: if
    so, every call in its transcript has its result."""
    store = SessionStore()
    state = store.load_state(key)
    assert store.get_current_run(key) is None, told(key)
    # A worker that died between its last commit and its release leaves a lease, which runs out.
    assert store.get_occupancy(key).owner is None, told(key)
    if not _waits_for_a_stopped_child(store, state):
        idle = state.status == "active" and state.runnable_at is None and not _wants_to_run(store, key)
        assert idle or state.status in ("completed", "failed", *STOPPED), told(key)
        waits = state.pending_client_tool_calls or state.suspended_awaiting_children
        assert not waits or state.status in STOPPED, told(key)
    assert not ends or state.status == "completed", told(key)
    if whole and state.status == "completed":  # who stops a session leaves its calls to the next run
        assert_valid_transcript(key)


def assert_executed_once(noted: Sequence[str], *, asks: Sequence[str]) -> None:
    """Of `session key tool`, one line for each execution, none is there twice. A call that is approved once
    more, because the session was rewound to where it waited, is executed once more."""
    store = SessionStore()
    executed = Counter(tuple(line.split()) for line in noted)
    approvals: Counter[str] = Counter()
    for session, _, tool in executed:
        if tool in asks and session not in approvals:
            answers = store.get_events(session, types=["tool_result_submitted"])
            approvals[session] = sum(event.data["answer"] == "approved" for event in answers)
    for (session, _, tool), times in executed.items():
        again = len(store.get_events(session, types=["session_rewound"])) if times > 1 and tool in asks else 0
        assert times <= 1 + again, f"{tool} was executed {times} times: {told(session)}"
        if tool in asks:
            approvals[session] -= times
            assert approvals[session] >= 0, f"{tool} was executed without an approval: {told(session)}"


def assert_answers_something(key: str) -> None:
    """Before every message of the agent is a prompt or the result of a tool, unless it was interrupted."""
    before: dict[str, object] = {}
    for message in SessionStore().get_messages(key).messages:
        twice = message["role"] == before.get("role") == "assistant" and not before.get("interrupted")
        assert not twice, f"the agent answered nothing: {told(key)}"
        before = message


def told(key: str) -> str:
    """The log of a session and of those below."""
    store = SessionStore()
    events = store.get_events(key, limit=500)
    below = [ref.sub_session_id for ref in store.get_sub_session_refs(key)]
    lines = [f"{event.seq} {event.type} {event.data}"[:160] for event in events]
    state = store.load_state(key)
    return "\n".join([f"{key!r} is {state.status}, {state.runnable_at}", *lines, *map(told, below)])


def told_of_all() -> str:
    """The logs of the sessions that have not come to rest."""
    busy = Session.objects.filter(Q(run_id__isnull=False) | Q(runnable_at__isnull=False))
    return "\n".join(told(key) for key in busy.values_list("session_id", flat=True)[:3])


def _waits_for_a_stopped_child(store: SessionStore, state: SessionState) -> bool:
    """Whether the session waits for a child that waits for a person."""
    children = (state.suspended_awaiting_children or {}).values()
    left = [entry["sub_session_id"] for entry in children if "status" not in entry]
    return any(store.load_state(key).status in STOPPED for key in left)


def _wants_to_run(store: SessionStore, key: str) -> bool:
    """Whether the session has inputs that somebody else than `resume=False` admitted."""
    admitted = store.get_events(key, types=["input_admitted"])
    quiet = {event.data["input_id"] for event in admitted if not event.data.get("resume", True)}
    return any(receipt.input_id not in quiet for receipt in store.list_inputs(key))
