"""The processes of a soak: each does one kind of work without end, and says how long each piece took."""

import itertools
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any
from uuid import uuid4

from bench import payload

STEPS_EACH = 40
PROMPTS_EACH = 5
KEPT_SECONDS = 20
READERS = 8
RECENT = "soak-live"
"""The session that live readers follow."""
AGENT = "soak"

Piece = tuple[str, Callable[[], Any]]


def run(role: str, number: int, rate: float, pipe: Connection) -> None:
    """Work until the other end of the pipe is closed; once a second the seconds of each piece go out. A
    writer does so many pieces a second, or, at 0, all it can."""
    import django

    django.setup()
    if role == "work":
        work(pipe)
        return
    taken: dict[str, list[float]] = {}
    last = time.perf_counter()
    pace = 1 / rate if rate and role == "write" else 0
    due = last
    with suppress(BrokenPipeError, EOFError, KeyboardInterrupt):
        for name, piece in ROLES[role](number):
            begin = time.perf_counter()
            seconds = piece()
            now = time.perf_counter()
            taken.setdefault(name, []).append(now - begin if seconds is None else seconds)
            if now - last > 1:
                pipe.send(taken)
                taken, last = {}, now
            due = max(due + pace, now - 1)  # what was missed for longer is not made up for
            time.sleep(max(0.0, due - time.perf_counter()) if pace else 0)


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


class Clerk:
    """Looks something up, pays when that is approved, and says so."""

    tools = {"look": lambda arguments, turn: {"price": 5}, "pay": lambda arguments, turn: {"paid": True}}
    client_tools = ()
    approval_tools = ("pay",)
    _NEXT = {"prompt": "look", "look": "pay"}

    def run_turn(self, turn: Any) -> Any:
        from helix_sessions.types import TurnOutcome

        last = turn.context.messages[-1]
        done = last["tool_call_id"].partition("-")[0] if last["role"] == "tool" else "prompt"
        message: dict[str, Any] = {"role": "assistant", "content": payload.text(400)}
        if done in self._NEXT:
            name = self._NEXT[done]
            message["tool_calls"] = [{"id": f"{name}-{uuid4().hex}", "name": name, "arguments": {"of": 5}}]
        return TurnOutcome(message)


def work(pipe: Connection) -> None:
    """All of `run_sessions`, with alerts and what else goes on beside it, until the pipe is closed."""
    from django.core.management import call_command
    from django.test import override_settings

    def leave() -> None:
        with suppress(EOFError, OSError):
            pipe.recv()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=leave, daemon=True).start()
    pipe.send({})
    with override_settings(HELIX_SESSIONS={"AGENTS": {AGENT: Clerk()}}):
        call_command("run_sessions", concurrency=4, verbosity=0)


def ask(number: int) -> Iterator[Piece]:
    """Prompts, each followed live until the worker asks for an approval, and then until its end."""
    store = _store()
    for round_ in itertools.count():
        key = f"soak-ask-{number}-{round_}"
        store.create_session(key, agent_type=AGENT)
        with store.subscribe(key) as events:

            def until(kind: str, status: str | None = None, events: Any = events) -> Any:
                found = (event for event in events if event.type == kind)
                return next(event for event in found if status in (None, event.data.get("status")))

            for _ in range(PROMPTS_EACH):
                begin = time.perf_counter()
                store.admit_input(key, payload.text(200))
                [call] = until("tool_calls_waiting").data["tool_call_ids"]
                asked = time.perf_counter()
                yield "question", lambda taken=asked - begin: taken  # type: ignore[misc]
                begin = time.perf_counter()
                store.submit_tool_result(key, call, approved=True)
                until("run_finished", "completed")
                taken = time.perf_counter() - begin
                yield "answer", lambda taken=taken: taken  # type: ignore[misc]
        store.update_status(key, "completed")


def stream(number: int) -> Iterator[Piece]:
    """Live readers of one session, and a writer in the same process that says when an event has reached the
    last of them."""
    store = _store()
    store.ensure_session(RECENT, agent_type=AGENT)
    seen: dict[int, list[float]] = defaultdict(list)
    arrived = threading.Condition()

    def follow() -> None:
        with store.subscribe(RECENT) as events:
            for event in events:
                with arrived:
                    seen[event.seq].append(time.perf_counter())
                    arrived.notify_all()

    for _ in range(READERS):
        threading.Thread(target=follow, daemon=True).start()
    time.sleep(0.5)

    def deliver() -> float | None:
        begin = time.perf_counter()
        seq = store.emit_event(RECENT, "progress", {"done": 1}).seq
        with arrived:
            if not arrived.wait_for(lambda: len(seen[seq]) == READERS, timeout=10):
                return 10.0
            return max(seen.pop(seq)) - begin

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
    "ask": ask,
    "stream": stream,
    "clean": clean,
    "look": look,
}
