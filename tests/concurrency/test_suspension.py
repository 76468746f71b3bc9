"""People, clients and sub-agents answer at once: one answer counts, one process goes on, nothing is lost."""

import random
from collections import Counter
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.exceptions import (
    HelixSessionsError,
    NotResumable,
    RunInProgress,
    SessionBusy,
    StaleState,
    StillWaiting,
)
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.types import Resumption, Submission, Turn
from tests.concurrency.locks import row_held
from tests.concurrency.outcomes import split
from tests.contract.suspended import asked, calling, child, messages, result, suspend, suspended, wait_for
from tests.invariants import assert_invariants, assert_valid_transcript
from tests.lengths import at_length
from tests.parallel import run_processes, run_threads

pytestmark = pytest.mark.django_db(transaction=True)


def submit_and_resume(number: int) -> tuple[Submission, Resumption | Exception]:
    """One answer, sent to the root or to its owner; then a resume of a session that has all its answers."""
    store = SessionStore()
    submission = store.submit_tool_result("root" if number % 2 else "kid", "a", result=number)
    try:
        return submission, store.resume("s", message=f"from {number}")
    except (RunInProgress, StaleState) as error:
        return submission, error


def test_sixteen_submissions_of_one_answer_and_sixteen_resumes(store: SessionStore):
    """Of processes that start together the answer of one is accepted, and one goes on."""
    store.begin_turn("root")
    child(store, "root", "kid", "c")
    suspend(store, "kid", asked("a"), asked("b"))
    suspended(store, "s", asked("a"))
    store.submit_tool_result("s", "a", result=1)

    outcomes, errors = split(run_processes(16, submit_and_resume), tuple)

    assert not errors
    submissions = [submission for submission, _ in outcomes]
    assert Counter(one.outcome for one in submissions) == {"accepted": 1, "already_completed": 15}
    assert {(one.owner_session_id, one.remaining) for one in submissions} == {("kid", 1)}
    assert len(store.get_events("kid", types=["tool_result_submitted"])) == 1
    accepted = next(n for n, one in enumerate(submissions) if one.outcome == "accepted")
    pending = store.load_state("kid").pending_client_tool_calls or {}
    assert pending["a"]["response"] == {"result": accepted}
    resumptions = [resumption for _, resumption in outcomes if isinstance(resumption, Resumption)]
    assert len(resumptions) == 1
    assert [run.turn for run in store.list_runs("s").items] == [2, 1]
    assert store.get_message_count("s") == 4
    assert_valid_transcript("s")
    for key in ("s", "root", "kid"):
        assert_invariants(key)


def test_sixteen_turns_of_one_new_session(store: SessionStore):
    outcomes, errors = split(run_threads(16, lambda n: SessionStore().begin_turn("s", message=str(n))), Turn)
    assert len(outcomes) == 1
    assert all(isinstance(error, RunInProgress) for error in errors)
    assert store.get_message_count("s") == 1
    assert_invariants("s")


def test_submissions_against_resumes_and_deadlines(store: SessionStore):
    """An answer that was accepted is in the transcript, whatever else was going on."""
    for number in range(10):
        key = f"s{number}"
        suspended(store, key, asked("a"))

        def act(n: int, key: str = key) -> Any:
            if n % 2:
                return SessionStore().submit_tool_result(key, "a", result=n).outcome
            while True:
                try:
                    return SessionStore().resume(key).tool_messages
                except StillWaiting:
                    continue

        outcomes = run_threads(6, act)
        accepted = [n for n, outcome in enumerate(outcomes) if outcome == "accepted"]
        resumed = [outcome for outcome in outcomes if isinstance(outcome, list)]
        assert len(accepted) == len(resumed) == 1
        assert resumed == [[result("a", accepted[0])]]
        assert_valid_transcript(key)


def tree(store: SessionStore, root: str) -> None:
    """A root that waits for two children and a client, the children for a client each."""
    store.begin_turn(root, message="hello")
    for name in ("x", "y"):
        child(store, root, f"{root}/{name}", name)
    waits = [wait_for(name, f"{root}/{name}") for name in ("x", "y")]
    suspend(store, root, asked("r"), append_messages=[calling("x", "r", "y")], awaiting_children=waits)
    for name in ("x", "y"):
        suspend(store, f"{root}/{name}", asked(f"in-{name}"))


ACTIONS = ["settle x", "settle y", "submit r", "submit in-x", "submit in-y", "resume", "resume x", "expire"]


def act(store: SessionStore, root: str, action: str) -> None:
    """One step of somebody; what the store refuses is tried again by whoever comes next."""
    what, _, name = action.partition(" ")
    try:
        if what == "settle":
            store.settle_child(f"{root}/{name}", "completed", output=name)
        elif what == "submit":
            store.submit_tool_result(root, name, result=name)
        elif what == "resume":
            store.resume(f"{root}/{name}" if name else root)
        else:
            store.settle_expired_calls()
    except (StillWaiting, RunInProgress, NotResumable):
        pass


def schedule(process: int, roots: list[str], seed: int) -> list[str]:
    """Work through all trees, each in an order of this process's own; the refusals nobody expects."""
    store = SessionStore()
    chance = random.Random(seed * 31 + process)
    surprises = []
    for root in roots:
        mine = chance.sample(ACTIONS, len(ACTIONS))
        for action in mine:
            try:
                act(store, root, action)
            except SessionBusy as error:
                surprises.append(f"deadlock or timeout: {error!r}")
            except HelixSessionsError as error:
                surprises.append(f"{action}: {error!r}")
    return surprises


def run_schedules(store: SessionStore, count: int) -> None:
    roots = [f"tree {number}" for number in range(count)]
    for root in roots:
        tree(store, root)
    seed = random.randrange(1 << 30)
    outcomes, errors = split(run_processes(3, schedule, roots, seed, timeout=3000), list)
    assert not errors, seed
    assert outcomes == [[], [], []], seed
    for number, root in enumerate(roots):
        assert_settled(store, root)
        if number % 10 == 0:
            assert_invariants(root)


def assert_settled(store: SessionStore, root: str) -> None:
    """Everybody did everything at least once, so nothing waits any more, and nothing came twice."""
    if store.get_current_run(root) is None:
        store.resume(root)
    expected = [result("x", "x"), result("r", "r"), result("y", "y")]
    said = [
        {**message, "tool_name": f"tool_{message['tool_call_id']}"} for message in messages(store, root)[2:]
    ]
    assert said == expected
    assert [run.turn for run in store.list_runs(root).items] == [2, 1]
    for name in ("x", "y"):
        assert store.load_state(f"{root}/{name}").output == name
        [event] = store.get_events(root, types=["subagent_result"], limit=10)[:1]
        assert event.data["status"] == "completed"
    assert len(store.get_events(root, types=["subagent_result"])) == 2
    assert_valid_transcript(root)


def test_children_settle_while_others_submit(store: SessionStore):
    run_schedules(store, 40)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_children_settle_while_others_submit_at_length(store: SessionStore):
    for _ in range(at_length(1)):
        run_schedules(store, 1000)
        for key in Session.objects.filter(parent_session_id=None).values_list("session_id", flat=True):
            store.delete_session(key)


def suspend_and_settle(process: int, root: str, rounds: int) -> int:
    """Members of one tree suspend, answer, resume and settle; how many refusals were met."""
    store = SessionStore()
    refused = 0
    chance = random.Random(process)
    keys = [root, f"{root}/x", f"{root}/x/z", f"{root}/y"]
    for number in range(rounds):
        key = chance.choice(keys)
        call_id = f"{process}-{number}"
        try:
            what = chance.random()
            if what < 0.4:
                run = store.get_current_run(key)
                if run is None:
                    store.begin_turn(key, message=call_id)
                else:
                    store.suspend(
                        key,
                        "client_tool",
                        state=store.load_state(key),
                        run_id=run.run_id,
                        append_messages=[calling(call_id)],
                        pending_calls=[asked(call_id)],
                    )
            elif what < 0.7:
                for waiting in store.load_state(key).pending_client_tool_calls or {}:
                    store.submit_tool_result(root, waiting, result=number)
            elif what < 0.9:
                store.resume(key)
            else:
                store.settle_child(key, "completed")
        except SessionBusy:
            raise
        except HelixSessionsError:
            refused += 1
    return refused


def test_a_tree_under_load(store: SessionStore):
    """Every call on every session of one tree by many processes: no deadlock, and valid transcripts."""
    store.begin_turn("root")
    child(store, "root", "root/x", "x")
    child(store, "root/x", "root/x/z", "z")
    child(store, "root", "root/y", "y")
    _, errors = split(run_processes(4, suspend_and_settle, "root", 60), int)
    assert not errors
    for key in ("root", "root/x", "root/x/z", "root/y"):
        state = store.load_state(key)
        assert_invariants(key)
        assert_valid_transcript(key, waiting=state.pending_client_tool_calls or ())


@pytest.mark.usefixtures("impatient")
def test_a_busy_session_does_not_keep_others_from_their_deadlines(store: SessionStore, engine: str):
    """It is left for the next time; on SQLite all of them are."""
    for key in "abc":
        suspended(store, key, asked("call", deadline=timezone.now()))
    with row_held("b"):
        assert store.settle_expired_calls() == (2 if engine == "postgresql" else 0)
    assert store.settle_expired_calls() == (1 if engine == "postgresql" else 3)
