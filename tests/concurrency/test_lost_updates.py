"""Many processes change one session: in the end every change is there, and nobody met a database error."""

from dataclasses import replace

import pytest

from helix_sessions.exceptions import StaleState
from helix_sessions.store import SessionStore
from helix_sessions.types import InstructionsRevision
from tests.concurrency.outcomes import split
from tests.invariants import assert_invariants
from tests.parallel import run_processes, run_threads

pytestmark = pytest.mark.django_db(transaction=True)

PROCESSES = 8
ROUNDS = 60


def read_modify_write(process: int, rounds: int) -> int:
    """Raise a counter `rounds` times, by turns with a whole save and with a merge; how often it was stale."""
    store = SessionStore()
    stale = 0
    for number in range(rounds):
        while True:
            state = store.load_state("s")
            count = state.custom_state["count"] + 1
            try:
                if number % 2:
                    custom = {**state.custom_state, "count": count, f"process {process}": number}
                    store.save_state("s", replace(state, custom_state=custom), expected_version=state.version)
                else:
                    writes = [
                        {"op": "set", "path": ["count"], "value": count},
                        {"op": "set", "path": [f"process {process}"], "value": number},
                    ]
                    store.merge_custom_state("s", writes, expected_version=state.version)
                break
            except StaleState:
                stale += 1
    return stale


@pytest.mark.timeout(300)
def test_read_modify_writes_of_eight_processes(store: SessionStore):
    store.create_session("s", agent_type="agent", custom_state={"count": 0})

    stale, errors = split(run_processes(PROCESSES, read_modify_write, ROUNDS, timeout=280), int)

    assert not errors
    assert sum(stale), "the processes never met"
    state = store.load_state("s")
    assert state.custom_state["count"] == PROCESSES * ROUNDS
    assert state.version == 1 + PROCESSES * ROUNDS
    assert {state.custom_state[f"process {n}"] for n in range(PROCESSES)} == {ROUNDS - 1}
    assert_invariants("s")


def change_without_a_condition(process: int, rounds: int) -> list[int]:
    """Count, append and merge; the numbers the counter gave."""
    store = SessionStore()
    given = []
    for number in range(rounds):
        given.append(store.increment_step_count("s"))
        store.increment_resume_count("s")
        store.append_messages("s", [{"role": "user", "content": [process, number]}])
        store.merge_custom_state("s", [{"op": "append", "path": ["items"], "values": [[process, number]]}])
    return given


def test_unconditional_changes_of_eight_processes(store: SessionStore):
    store.create_session("s", agent_type="agent")
    rounds = 25

    given, errors = split(run_processes(PROCESSES, change_without_a_condition, rounds), list)

    assert not errors
    total = PROCESSES * rounds
    assert sorted(number for numbers in given for number in numbers) == list(range(1, total + 1))
    state = store.load_state("s")
    assert (state.step_count, state.resume_count, state.message_count) == (total, total, total)
    assert state.version == 1 + 4 * total
    everything = [[process, number] for process in range(PROCESSES) for number in range(rounds)]
    messages = [message["content"] for message in store.get_messages("s").messages]
    assert sorted(messages) == sorted(state.custom_state["items"]) == everything
    for process in range(PROCESSES):
        own = [number for who, number in messages if who == process]
        assert own == list(range(rounds)), "the order of one writer was not kept"
    assert_invariants("s")


def test_appended_messages_stay_together_and_positions_have_no_gaps(store: SessionStore):
    store.create_session("s", agent_type="agent")
    batch = 5

    def append(n: int) -> list[tuple[int, int, int]]:
        places = []
        for number in range(10):
            messages = [{"role": "user", "content": [n, number, i]} for i in range(batch)]
            result = store.append_messages("s", messages)
            places.append((result.first_position, result.message_count, result.head_seq))
        return places

    answers, errors = split(run_threads(8, append), list)

    assert not errors
    places = sorted(place for answer in answers for place in answer)
    assert places == [(first, first + batch, first + batch + 1) for first in range(0, 8 * 10 * batch, batch)]
    contents = [message["content"] for message in store.get_messages("s").messages]
    for first in range(0, len(contents), batch):
        who, number, _ = contents[first]
        assert contents[first : first + batch] == [[who, number, i] for i in range(batch)]
    events = store.get_events("s", 2)
    assert [event.data["content"] for event in events] == contents
    assert_invariants("s")


def test_truncations_and_appends(store: SessionStore):
    store.create_session("s", agent_type="agent")

    def work(n: int) -> int:
        removed = 0
        for number in range(15):
            if n % 4 == 0:
                removed += store.truncate_messages("s", number)
            else:
                store.append_messages("s", [{"role": "assistant", "content": [n, number]}] * 2)
        return removed

    removed, errors = split(run_threads(8, work), int)

    assert not errors
    appended = 6 * 15 * 2
    assert store.get_message_count("s") == appended - sum(removed)
    assert len(store.get_events("s", types=["assistant_message"])) == appended
    assert_invariants("s")


def test_staging_and_step_commits_lose_nothing(store: SessionStore):
    """Tools stage while the step is committed again and again: each write arrives exactly once."""
    state = store.create_session("s", agent_type="agent", custom_state={"items": []})
    tools, calls = 6, 12

    def work(n: int) -> int:
        if n < tools:
            for call in range(calls):
                store.stage_changes(
                    "s",
                    f"step {n % 2}",
                    f"{n}-{call}",
                    [{"op": "append", "path": ["items"], "values": [[n, call]]}],
                )
            return 0
        commits = 0
        while len(store.load_state("s").custom_state["items"]) < tools * calls:
            now = store.load_state("s")
            try:
                if n == tools:
                    store.save_state_and_promote_staging("s", now, expected_version=now.version)
                else:
                    store.promote_staging("s", "step 1", expected_version=now.version)
            except StaleState:
                continue
            commits += 1
        return commits

    _, errors = split(run_threads(tools + 2, work), int)

    assert not errors
    items = store.load_state("s").custom_state["items"]
    assert sorted(items) == [[n, call] for n in range(tools) for call in range(calls)]
    for n in range(tools):
        assert [call for who, call in items if who == n] == list(range(calls)), "staging order was not kept"
    assert not store.has_staged_changes("s")
    assert state.version < store.load_state("s").version
    assert_invariants("s")


def test_sessions_do_not_disturb_each_other(store: SessionStore):
    for n in range(8):
        store.create_session(f"s{n}", agent_type="agent", custom_state={"count": 0})

    def work(n: int) -> int:
        for _ in range(20):
            state = store.load_state(f"s{n}")
            state = replace(state, custom_state={"count": state.custom_state["count"] + 1})
            store.save_state_and_promote_staging(
                f"s{n}", state, [{"role": "user", "content": n}], expected_version=state.version
            )
        return n

    assert run_threads(8, work) == list(range(8))
    for n in range(8):
        assert store.load_state(f"s{n}").custom_state == {"count": 20}
        assert {message["content"] for message in store.get_messages(f"s{n}").messages} == {n}
        assert_invariants(f"s{n}")


def test_instructions_that_are_written_at_once_are_all_revisions(store: SessionStore) -> None:
    store.set_instructions("writer", "first")

    def write(index: int) -> list[InstructionsRevision | None]:
        return [store.set_instructions("writer", f"{index} {n}") for n in range(10)]

    written = run_threads(4, write)
    assert [error for error in written if isinstance(error, Exception)] == []
    revisions = store.list_instructions_revisions("writer")
    assert [revision.number for revision in revisions] == list(range(41, 0, -1))
    assert store.get_instructions("writer") == revisions[0].text
