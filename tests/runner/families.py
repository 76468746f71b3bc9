"""Parents with children on several workers, some of which are killed: every parent ends once."""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from django.db import connections
from django.test import override_settings

from helix_sessions.models import Session
from helix_sessions.runtime import TurnContext, TurnOutcome
from helix_sessions.runtime.loop.worker import Worker
from helix_sessions.store import SessionStore
from tests.invariants import assert_healthy, assert_invariants

TTL = 1.0


class Parent:
    """Asks as many children as the prompt says."""

    subagents = {"ask": "child"}

    def run_turn(self, turn: TurnContext) -> TurnOutcome:
        last = turn.context.messages[-1]
        if last["role"] == "user":
            listed = [
                {"id": f"c{number}", "name": "ask", "arguments": {"prompt": "note it"}}
                for number in range(int(last["content"]))
            ]
            return TurnOutcome({"role": "assistant", "content": "", "tool_calls": listed})
        results = [message["content"] for message in turn.context.messages if message["role"] == "tool"]
        return TurnOutcome("ok", output=results)


class Child:
    """Notes something in the world, once."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self.tools = {"note": self.note}

    def note(self, arguments: Any, turn: TurnContext) -> str:
        with self._notes.open("a") as file:
            file.write(f"{turn.idempotency_key}\n")
        return "noted"

    def run_turn(self, turn: TurnContext) -> TurnOutcome:
        if turn.context.messages[-1]["role"] == "user":
            call = {"id": "note", "name": "note", "arguments": {}}
            return TurnOutcome({"role": "assistant", "content": "", "tool_calls": [call]})
        return TurnOutcome("done")


def run_families(
    seed: int, parents: int, children: int, workers: int, kills: int, directory: str
) -> Counter[str]:
    """Run them; what happened. To be called in a process of its own."""
    chance, notes = random.Random(seed), Path(directory, f"notes {seed}")
    notes.touch()
    agents = {"parent": Parent(), "child": Child(notes)}
    with override_settings(HELIX_SESSIONS={"AGENTS": agents, "MAX_INTERRUPTED_ATTEMPTS": 50}):
        store = SessionStore()
        for number in range(parents):
            store.create_session(f"p{number}", agent_type="parent")
            store.admit_input(f"p{number}", str(children))
        running = [_start() for _ in range(workers)]
        left = kills
        try:
            while (ended := _ended()) < parents:
                due = kills - left < 1 + kills * ended / parents  # from the beginning to the end
                if left and due:
                    _end(running.pop(chance.randrange(len(running))))
                    running.append(_start())
                    left -= 1
                time.sleep(chance.uniform(0.05, 0.3))
        finally:
            for process in running:
                _end(process)
        return _check(parents, children, notes) + Counter(kills=kills - left)


def _start() -> int:
    connections.close_all()
    child = os.fork()
    if child:
        return child
    try:
        Worker(using="default", concurrency=2, lease_ttl=TTL, poll=0.2).work()
    finally:
        os._exit(0)


def _end(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def _ended() -> int:
    """How many parents have."""
    ended = Session.objects.filter(agent_type="parent", status="completed", run_id=None).count()
    connections.close_all()
    return ended


def _check(parents: int, children: int, notes: Path) -> Counter[str]:
    store, told = SessionStore(), Counter[str]()
    for number in range(parents):
        key = f"p{number}"
        assert_invariants(key, examined=True)
        state = store.load_state(key)
        assert state.status == "completed", f"{key} is {state.status}"
        assert state.output is not None
        assert len(state.output) == children, f"{key} has {len(state.output)} results"
        completed = [run for run in store.list_runs(key).items if run.status == "completed"]
        assert len(completed) == 1, f"{key} ended {len(completed)} times"
        refs = store.get_sub_session_refs(key)
        assert len(refs) == children, f"{key} has {len(refs)} children"
        told["children"] += len(refs)
        told["errors"] += sum(ref.status == "failed" for ref in refs)
    assert_healthy(*Session.objects.values_list("session_id", flat=True))
    noted = notes.read_text().splitlines()
    assert len(noted) == len(set(noted)), "a tool was executed twice"
    told["noted"] = len(noted)
    return told
