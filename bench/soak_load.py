"""The processes of a soak: each does one kind of work without end, and says how long each piece took."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

from bench import payload

STEPS_EACH = 40
KEPT_SECONDS = 20
RECENT = "soak-live"
"""The session that live readers follow."""

Piece = tuple[str, Callable[[], Any]]


def run(role: str, number: int, pipe: Connection) -> None:
    """Work until the other end of the pipe is closed; once a second the seconds of each piece go out."""
    import django

    django.setup()
    taken: dict[str, list[float]] = {}
    last = time.perf_counter()
    with suppress(BrokenPipeError, EOFError, KeyboardInterrupt):
        for name, piece in ROLES[role](number):
            begin = time.perf_counter()
            seconds = piece()
            now = time.perf_counter()
            taken.setdefault(name, []).append(now - begin if seconds is None else seconds)
            if now - last > 1:
                pipe.send(taken)
                taken, last = {}, now


def _store() -> Any:
    from helix_sessions.store import SessionStore

    return SessionStore()


def write(number: int) -> Iterator[Piece]:
    """Sessions of so many steps, one after the other; a completed one waits for its removal."""
    from bench.contestants.ours import Ours

    ours, steps = Ours(None, using="default"), payload.steps()  # type: ignore[arg-type]
    for round_ in itertools.count():
        key = f"soak-{number}-{round_}"
        yield "create", lambda key=key: ours.create(key)  # type: ignore[misc]
        for _ in range(STEPS_EACH):
            yield "step", lambda key=key: ours.step(key, next(steps))  # type: ignore[misc]
        yield "complete", lambda key=key: _none(ours.store.update_status(key, "completed"))  # type: ignore[misc]


def _none(_: Any) -> None:
    """What a piece returns is its seconds, unless it is nothing."""


def work(number: int) -> Iterator[Piece]:
    """Prompts that a runner answers."""
    from helix_sessions.runtime import SessionRunner
    from helix_sessions.types import TurnOutcome

    class Speaker:
        tools: dict[str, Any] = {}
        client_tools = approval_tools = ()

        def run_turn(self, turn: Any) -> Any:
            return TurnOutcome({"role": "assistant", "content": payload.text(400)})

    store = _store()
    runner = SessionRunner(Speaker(), store=store)
    for round_ in itertools.count():
        key = f"soak-run-{number}-{round_}"
        store.create_session(key, agent_type="soak")
        for _ in range(5):
            store.admit_input(key, payload.text(200), resume=False)
            yield "run", lambda key=key: _none(runner.run(key))  # type: ignore[misc]
        store.update_status(key, "completed")


def stream(number: int) -> Iterator[Piece]:
    """Live readers of one session, and a writer in the same process that says when an event was sent."""
    store = _store()
    store.ensure_session(RECENT, agent_type="soak")
    seen: dict[int, float] = {}
    arrived = threading.Condition()

    def follow() -> None:
        with store.subscribe(RECENT) as events:
            for event in events:
                with arrived:
                    seen[event.seq] = time.perf_counter()
                    arrived.notify_all()

    threading.Thread(target=follow, daemon=True).start()
    time.sleep(0.5)

    def deliver() -> float | None:
        begin = time.perf_counter()
        seq = store.emit_event(RECENT, "progress", {"done": 1}).seq
        with arrived:
            if not arrived.wait_for(lambda: seq in seen, timeout=10):
                return 10.0
            return seen.pop(seq) - begin

    while True:
        yield "deliver", deliver
        time.sleep(0.05)


def clean(number: int) -> Iterator[Piece]:
    """Retention: completed sessions go after a while."""
    from helix_sessions.types import RetentionPolicy

    store, policy = _store(), RetentionPolicy(terminal_for=timedelta(seconds=KEPT_SECONDS))
    while True:
        yield "clean", lambda: _none(store.prune_sessions(policy))
        store.expired_session_cleanup()
        time.sleep(2)


def look(number: int) -> Iterator[Piece]:
    """What a console asks: the list, those of a status, a transcript and a log."""
    store = _store()
    while True:
        yield "list", lambda: _none(store.list_sessions(limit=50))
        page = store.list_sessions(status="completed", limit=5)
        for row in page.items:
            with suppress(Exception):  # removed meanwhile
                store.get_messages(row.session_id, limit=50, newest_first=True)
                store.get_events(row.session_id, limit=50)
        time.sleep(0.2)


ROLES: dict[str, Callable[[int], Iterator[Piece]]] = {
    "write": write,
    "work": work,
    "stream": stream,
    "clean": clean,
    "look": look,
}
