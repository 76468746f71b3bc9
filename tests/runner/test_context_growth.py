"""What a runner sends at one turn is the beginning of what it sends at the next, until it compacts."""

import json
import random
from typing import Any

import pytest

from helix_sessions.runtime import CompactionPolicy, SessionRunner, TurnOutcome
from helix_sessions.store import SessionStore
from tests.contract.sources import Said

pytestmark = pytest.mark.django_db(transaction=True)


class Talker:
    """Notes the bytes of each context; calls a tool now and then, while sources change and people steer."""

    client_tools: tuple[str, ...] = ()
    approval_tools: tuple[str, ...] = ()

    def __init__(self, store: SessionStore, seed: int) -> None:
        self.store, self.random, self.turns = store, random.Random(seed), 0
        self.sources = [Said("day", 1), Said("place", "here")]
        self.sent: list[list[bytes]] = []
        self.tools = {"look": self.look}

    def look(self, arguments: Any, turn: Any) -> Any:
        if self.random.random() < 0.3:
            self.sources[0].value += 1
        if self.random.random() < 0.3:
            self.store.admit_input(turn.session_id, f"And {self.turns}?", resume=False)
        return {"seen": "x" * self.random.choice([1, 500, 120_000])}

    def run_turn(self, turn: Any) -> TurnOutcome:
        texts = [turn.context.baseline, *map(json.dumps, turn.context.messages)]
        self.sent.append([text.encode() for text in texts])
        self.turns += 1
        said: dict[str, Any] = {"role": "assistant", "content": f"turn {self.turns}"}
        if self.turns % 6:
            said["tool_calls"] = [{"id": f"c{self.turns}", "name": "look", "arguments": {}}]
        return TurnOutcome(said)


def parted(sent: list[list[bytes]]) -> list[int]:
    """The turns whose context does not begin with the one before it."""
    return [n for n in range(1, len(sent)) if sent[n][: len(sent[n - 1])] != sent[n - 1]]


def test_without_a_compaction_it_only_grows(store: SessionStore) -> None:
    for seed in range(3):
        session = store.ensure_session(agent_type="talker").session_id
        talker = Talker(store, seed)
        for number in range(3):
            store.admit_input(session, f"Prompt {number}", resume=False)
            runner = SessionRunner(talker, store=store, sources=talker.sources)
            assert runner.run(session).kind == "completed"
        assert talker.turns >= 18
        assert parted(talker.sent) == [], f"seed {seed}"
        assert max(len(text) for text in talker.sent[-1]) < 110_000


def test_a_compaction_is_the_only_break(store: SessionStore) -> None:
    session = store.ensure_session(agent_type="talker").session_id
    talker = Talker(store, 1)
    policy = CompactionPolicy(30_000, buffer=1_000, keep_recent=100)
    runner = SessionRunner(
        talker,
        store=store,
        sources=talker.sources,
        compaction=policy,
        summarize=lambda request: f"{len(request.messages)} messages",
    )
    for number in range(3):
        store.admit_input(session, f"Prompt {number}", resume=False)
        assert runner.run(session).kind == "completed"
    compactions = store.list_compactions(session)
    assert compactions
    assert len(parted(talker.sent)) == len(compactions)
