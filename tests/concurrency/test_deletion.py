"""A session that goes while others work on it goes whole: done before, or `SessionNotFound`."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from helix_sessions.exceptions import SessionBusy, SessionExists, SessionNotFound
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from tests.concurrency.calls import each_call, prepare
from tests.concurrency.outcomes import split
from tests.invariants import assert_invariants, assert_no_orphans, dump
from tests.parallel import run_processes, run_threads

pytestmark = pytest.mark.django_db(transaction=True)

MESSAGE = {"role": "user", "content": "hello"}
WRITES: dict[str, Callable[[SessionStore, int], object]] = {
    "append": lambda store, n: store.append_messages("s", [MESSAGE]),
    "merge": lambda store, n: store.merge_custom_state("s", [{"op": "set", "path": ["n"], "value": n}]),
    "save": lambda store, n: store.save_state("s", replace(store.load_state("s"), custom_state={"n": n})),
    "commit": lambda store, n: store.save_state_and_promote_staging("s", store.load_state("s"), [MESSAGE]),
    "stage": lambda store, n: store.stage_changes("s", "step", f"call {n}", []),
    "promote": lambda store, n: store.promote_staging("s", "step"),
    "event": lambda store, n: store.emit_event("s", "llm_requested", {}, idempotency_key=f"key {n}"),
    "refs": lambda store, n: store.add_sub_session_refs(
        "s", [{"sub_session_id": f"sub {n}", "agent_type": "agent"}]
    ),
    "checkpoint": lambda store, n: store.create_checkpoint("s"),
    "run": lambda store, n: store.update_run_status("s", store.create_run("s").run_id, "completed"),
}


def write_until_it_is_gone(process: int) -> int:
    """Write in every way by turns; how many writes came before the deletion."""
    store = SessionStore()
    done = 0
    try:
        while True:
            for name, write in WRITES.items():
                if name == "run" and process:
                    continue
                write(store, 1000 * process + done)
                done += 1
    except SessionNotFound:
        return done


@pytest.mark.parametrize("way", ["threads", "processes"])
def test_writers_finish_before_the_deletion_or_learn_of_it(store: SessionStore, way: str):
    store.create_session("s", agent_type="agent")
    run = run_threads if way == "threads" else run_processes
    outcomes: list[int | Exception] = []
    writers = threading.Thread(target=lambda: outcomes.extend(run(4, write_until_it_is_gone)))
    writers.start()
    while store.load_state("s").version < 40 and writers.is_alive():
        pass
    store.delete_session("s")
    writers.join()

    counts, errors = split(outcomes, int)
    assert not errors
    assert sum(counts) >= 39
    assert not any(dump().values()), "rows of the deleted session were left"


def test_every_call_against_a_deletion(store: SessionStore):
    """Whoever is first, nothing is left behind."""
    for name, call in each_call(store):
        work = [call, lambda: store.delete_session("s")]
        called, deleted = run_threads(2, lambda n, work=work: work[n]())  # type: ignore[misc]
        assert deleted is None, name
        assert not isinstance(called, Exception) or isinstance(called, SessionNotFound), called
        assert not store.session_exists("s"), name
        assert not store.session_exists("child"), name
        assert_no_orphans()
        for session in Session.objects.values_list("session_id", flat=True):
            assert name.startswith("clone")
            assert_invariants(session)
            store.delete_session(session)
        assert not any(dump().values()), name


def test_sixteen_deletions_of_one_session(store: SessionStore):
    prepare(store)

    assert run_threads(16, lambda _: store.delete_session("s")) == [None] * 16
    assert not any(dump().values())


def test_no_child_outlives_its_parent(store: SessionStore):
    """Children are created while the tree is deleted: they were in time and went too, or were refused."""
    for round_ in range(4):
        store.create_session("root", agent_type="agent")
        store.create_session("middle", agent_type="agent", parent_session_id="root")

        def work(n: int) -> int | None:
            if n == 0:
                store.delete_session("root")
                return None
            created = 0
            try:
                for number in range(50):
                    parent = ("root", "middle")[number % 2]
                    store.create_session(f"{n}-{number}", agent_type="agent", parent_session_id=parent)
                    created += 1
            except SessionNotFound:
                pass
            return created

        _, errors = split(run_threads(5, work), int, type(None))
        assert not errors
        assert not any(dump().values()), f"round {round_}"


def test_no_referenced_session_outlives_the_tree(store: SessionStore):
    store.create_session("s", agent_type="agent")
    for n in range(8):
        store.create_session(f"sub {n}", agent_type="agent")

    def work(n: int) -> object:
        if n == 0:
            while not store.get_sub_session_refs("s"):
                pass
            store.delete_session("s")
            return None
        try:
            return store.add_sub_session_refs(
                "s", [{"sub_session_id": f"sub {n - 1}", "agent_type": "agent"}]
            )
        except SessionNotFound:
            return "late"

    outcomes = run_threads(9, work)
    for n, outcome in enumerate(outcomes[1:]):
        assert store.session_exists(f"sub {n}") == (outcome == "late")
    assert_no_orphans()


def test_trees_that_meet_are_deleted_at_once(store: SessionStore):
    """Two trees that refer to each other, deleted from both ends: all goes, or one is told to try again."""
    for _ in range(3):
        for name in "abcd":
            store.create_session(name, agent_type="agent")
        for first, second in zip("abcd", "bcda", strict=True):
            store.add_sub_session_refs(first, [{"sub_session_id": second, "agent_type": "agent"}])
        outcomes = run_threads(2, lambda n: store.delete_session("ac"[n]))
        assert None in outcomes
        assert all(outcome is None or isinstance(outcome, SessionBusy) for outcome in outcomes)
        assert not any(dump().values())


def test_an_id_that_is_created_and_deleted_all_the_time(store: SessionStore):
    """Creation, deletion, branching and writing of the same few ids; what is there is whole."""

    def work(n: int) -> list[Exception]:
        unexpected: list[Exception] = []
        for number in range(12):
            name, other = f"s{number % 2}", f"s{(number + 1) % 2}"
            try:
                match (n + number) % 5:
                    case 0:
                        store.create_session(name, agent_type="agent", custom_state={"n": n})
                    case 1:
                        store.delete_session(name)
                    case 2:
                        store.clone_session(name, other)
                    case 3:
                        store.append_messages(name, [MESSAGE] * 2)
                    case 4:
                        store.attach(name)
            except (SessionExists, SessionNotFound):
                pass
            except Exception as error:
                unexpected.append(error)
        return unexpected

    answers, errors = split(run_threads(8, work), list)
    assert not errors
    assert answers == [[]] * 8
    assert_no_orphans()
    for session in Session.objects.values_list("session_id", flat=True):
        assert_invariants(session)


def test_attach_never_finds_nothing(store: SessionStore):
    """It creates what is absent, also when somebody deletes it in between."""

    def work(n: int) -> list[int]:
        heads = []
        for _ in range(30):
            if n % 2:
                store.delete_session("s")
            else:
                heads.append(store.attach("s"))
        return heads

    heads, errors = split(run_threads(8, work), list)
    assert not errors
    assert {head for some in heads for head in some} == {1}
