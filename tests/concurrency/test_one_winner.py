"""Of N callers who want the same thing at the same moment, exactly one gets it."""

from dataclasses import replace
from typing import Any

import pytest

from helix_sessions.exceptions import RunExists, RunInProgress, SessionExists, StaleState
from helix_sessions.store import SessionStore
from helix_sessions.types import (
    AppendResult,
    CasMismatch,
    CasOk,
    Checkpoint,
    CheckpointMeta,
    CommitResult,
    InterruptRequest,
    Run,
    SessionState,
)
from tests.concurrency.outcomes import split
from tests.invariants import assert_invariants
from tests.parallel import run_processes, run_threads
from tests.rows import each

pytestmark = pytest.mark.django_db(transaction=True)

CALLERS = 16
PROCESSES = 4
THREADS = CALLERS // PROCESSES


def create_in_threads(process: int) -> list[Any]:
    """`THREADS` callers of this process create the one session."""

    def create(thread: int) -> SessionState:
        caller = process * THREADS + thread
        return SessionStore().create_session(
            "s", agent_type=f"agent {caller}", custom_state={"caller": caller}, tags=[f"tag {caller}"]
        )

    return run_threads(THREADS, create)


@pytest.mark.parametrize("way", ["threads", "processes"])
def test_one_of_sixteen_creates_the_session(store: SessionStore, way: str):
    if way == "threads":
        outcomes = run_threads(
            CALLERS,
            lambda caller: store.create_session("s", agent_type="agent", custom_state={"caller": caller}),
        )
    else:
        answers = run_processes(PROCESSES, create_in_threads)
        outcomes = [outcome for answer in answers if isinstance(answer, list) for outcome in answer]
    [winner], losers = split(outcomes, SessionState)
    assert [type(error) for error in losers] == [SessionExists] * (CALLERS - 1)
    assert store.load_state("s") == winner
    assert winner.version == winner.head_seq == 1
    assert_invariants("s")


WRITERS = {
    "save_state": lambda store, state, n: store.save_state(
        "s", replace(state, custom_state={"writer": n}), expected_version=state.version
    ),
    "merge_custom_state": lambda store, state, n: store.merge_custom_state(
        "s", [{"op": "set", "path": ["writer"], "value": n}], expected_version=state.version
    ),
    "commit": lambda store, state, n: store.save_state_and_promote_staging(
        "s",
        replace(state, custom_state={"writer": n}),
        [{"role": "user", "content": n}],
        expected_version=state.version,
    ),
    "append_messages": lambda store, state, n: store.append_messages(
        "s", [{"role": "user", "content": n}], expected_version=state.version
    ),
    "update_status": lambda store, state, n: store.update_status(
        "s", "paused", output=n, expected_version=state.version
    ),
    "increment_step_count": lambda store, state, n: store.increment_step_count(
        "s", expected_version=state.version
    ),
    "create_run": lambda store, state, n: store.create_run(
        "s", run_id=f"r{n}", expected_version=state.version
    ),
    "create_checkpoint": lambda store, state, n: store.create_checkpoint("s", expected_version=state.version),
    "patch_metadata": lambda store, state, n: store.patch_metadata(
        "s", {"writer": n}, expected_version=state.version
    ),
}
ANSWERS = (SessionState, CommitResult, AppendResult, Run, Checkpoint, int)


@each("call", WRITERS)
def test_one_of_sixteen_writers_with_one_expected_version_wins(store: SessionStore, call: str):
    store.create_session("s", agent_type="agent")
    store.update_status("s", "interrupted")
    state = store.load_state("s")

    outcomes = run_threads(CALLERS, lambda n: WRITERS[call](SessionStore(), state, n))

    [_], losers = split(outcomes, *ANSWERS)
    now = store.load_state("s")
    assert now.version == state.version + 1
    assert len(losers) == CALLERS - 1
    for error in losers:
        assert isinstance(error, StaleState), error
        assert error.expected_version == state.version
        assert error.current_version == state.version + 1
        assert error.current_status == now.status
    assert_invariants("s")


def test_the_winner_of_an_expected_version_is_the_one_who_is_stored(store: SessionStore):
    state = store.create_session("s", agent_type="agent")

    outcomes = run_threads(CALLERS, lambda n: WRITERS["save_state"](SessionStore(), state, n))

    [winner], _ = split(outcomes, SessionState)
    assert store.load_state("s") == winner
    checkpoint = store.get_latest_checkpoint("s")
    assert checkpoint is not None
    assert checkpoint.state == winner


def test_one_of_sixteen_compare_and_sets_wins(store: SessionStore):
    store.create_session("s", agent_type="agent")

    outcomes = run_threads(
        CALLERS, lambda n: store.compare_and_set_status("s", ["active"], "paused", error=f"caller {n}")
    )

    [winner], losers = split(outcomes, CasOk)
    assert winner == CasOk(new_version=2)
    assert losers == [CasMismatch(current_status="paused", current_version=2)] * (CALLERS - 1)
    state = store.load_state("s")
    assert (state.status, state.version, state.error) == (
        "paused",
        2,
        f"caller {outcomes.index(winner)}",
    )
    assert_invariants("s")


def poll_in_threads(process: int) -> list[Any]:
    return run_threads(THREADS, lambda _: SessionStore().check_interrupt_flag("s"))


@pytest.mark.parametrize("way", ["threads", "processes"])
def test_one_of_sixteen_pollers_sees_the_interrupt(store: SessionStore, way: str):
    store.create_session("s", agent_type="agent")
    version = store.set_interrupt_flag("s", "enough")

    if way == "threads":
        outcomes = run_threads(CALLERS, lambda _: store.check_interrupt_flag("s"))
    else:
        answers = run_processes(PROCESSES, poll_in_threads)
        outcomes = [outcome for answer in answers if isinstance(answer, list) for outcome in answer]

    [seen], others = split(outcomes, InterruptRequest)
    assert seen.reason == "enough"
    assert others == [None] * (CALLERS - 1)
    assert store.load_state("s").version == version + 1
    assert [event.type for event in store.get_events("s")].count("interrupt_cleared") == 1


def test_each_interrupt_is_seen_once_while_others_are_set(store: SessionStore):
    store.create_session("s", agent_type="agent")
    requests = 10

    def work(n: int) -> list[str | None]:
        if n == 0:
            for number in range(requests):
                while store.peek_interrupt_flag("s") is not None:
                    pass
                store.set_interrupt_flag("s", str(number))
            return []
        seen: list[str | None] = []
        while len(store.get_events("s", types=["interrupt_cleared"])) < requests:
            request = store.check_interrupt_flag("s")
            if request is not None:
                seen.append(request.reason)
        return seen

    outcomes, errors = split(run_threads(4, work), list)
    assert not errors
    assert sorted(reason for seen in outcomes for reason in seen) == [str(n) for n in range(requests)]


def test_one_of_sixteen_starts_a_run(store: SessionStore):
    store.create_session("s", agent_type="agent")

    outcomes = run_threads(CALLERS, lambda n: store.create_run("s", run_id=f"r{n}"))

    [run], losers = split(outcomes, Run)
    assert [type(error) for error in losers] == [RunInProgress] * (CALLERS - 1)
    assert store.get_current_run("s") == run
    assert store.list_runs("s").items == [run]
    assert (run.turn, run.start_sequence, store.load_state("s").version) == (1, 1, 2)
    assert_invariants("s")


def test_turns_are_numbered_without_gaps_when_runs_race(store: SessionStore):
    store.create_session("s", agent_type="agent")
    turns = 24

    def run_turns(n: int) -> int:
        finished = 0
        for number in range(turns // 8):
            while True:
                try:
                    run = store.create_run("s", run_id=f"r{n}-{number}")
                except RunInProgress:
                    continue
                store.update_run_status("s", run.run_id, "completed")
                finished += 1
                break
        return finished

    counts, errors = split(run_threads(8, run_turns), int)
    assert not errors
    assert sum(counts) == turns
    assert [run.turn for run in store.list_runs("s").items] == list(range(turns, 0, -1))
    assert_invariants("s")


def test_one_run_id_is_used_once(store: SessionStore):
    store.create_session("s", agent_type="agent")

    def run_once(_: int) -> Run:
        run = store.create_run("s", run_id="r")
        return store.update_run_status("s", run.run_id, "completed")

    [_], losers = split(run_threads(CALLERS, run_once), Run)
    assert {type(error) for error in losers} <= {RunInProgress, RunExists}
    assert len(store.list_runs("s").items) == 1


COMMITS = {
    "commit": lambda store, state, meta: store.save_state_and_promote_staging(
        "s", replace(state, custom_state={"n": 1}), [{"role": "user", "content": "hello"}], meta
    ),
    "commit with the version": lambda store, state, meta: store.save_state_and_promote_staging(
        "s", state, [{"role": "user", "content": "hello"}], meta, expected_version=state.version
    ),
    "promote_staging": lambda store, state, meta: store.promote_staging("s", "step", meta),
}


@pytest.mark.parametrize("call", COMMITS)
def test_one_of_sixteen_equal_commits_is_written(store: SessionStore, call: str):
    state = store.create_session("s", agent_type="agent")
    store.stage_changes("s", "step", "call", [{"op": "append", "path": ["items"], "values": [1]}])
    meta = CheckpointMeta(checkpoint_id="c", step_id="step")

    outcomes = run_threads(CALLERS, lambda _: COMMITS[call](SessionStore(), state, meta))

    results, errors = split(outcomes, CommitResult)
    assert not errors
    [written] = [result for result in results if not result.replayed]
    assert [result for result in results if result.replayed] == [replace(written, replayed=True)] * 15
    now = store.load_state("s")
    assert (now.version, now.head_seq) == (written.version, written.head_seq) == (2, now.head_seq)
    assert now.message_count == written.message_count == (0 if call == "promote_staging" else 1)
    assert now.custom_state["items"] == [1]
    assert [checkpoint.checkpoint_id for checkpoint in store.list_checkpoints("s").items] == ["c"]
    assert_invariants("s")


def test_one_of_sixteen_equal_checkpoints_is_written(store: SessionStore):
    store.create_session("s", agent_type="agent")

    outcomes = run_threads(CALLERS, lambda _: store.create_checkpoint("s", {"checkpoint_id": "c"}))

    made, errors = split(outcomes, Checkpoint)
    assert not errors
    assert made == [store.get_checkpoint("s", "c")] * CALLERS
    assert store.load_state("s").version == 2


def test_one_idempotency_key_emits_one_event(store: SessionStore):
    store.create_session("s", agent_type="agent")

    outcomes = run_threads(
        CALLERS, lambda n: store.emit_event("s", "user_message", {"content": n}, idempotency_key="k")
    )

    assert len({event.seq for event in outcomes if not isinstance(event, Exception)}) == 1
    assert outcomes == [outcomes[0]] * CALLERS
    assert store.get_message_count("s") == 1
    assert store.load_state("s").head_seq == 2


def test_attach_creates_once(store: SessionStore):
    outcomes = run_threads(CALLERS, lambda _: store.attach("s"))

    assert outcomes == [1] * CALLERS
    assert_invariants("s")
