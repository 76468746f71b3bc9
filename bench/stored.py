"""What a conversation takes in each store: 1,000 steps of two messages of 300 bytes, its id of 36 characters.

All store the same. Ours, SQL by hand, LangGraph and ADK also store a small state that each step changes;
ours, SQL by hand and LangGraph a checkpoint for each step; ours and SQL by hand four events. A size is what a
table has grown by, with TOAST and indexes. Nothing is timed, so commits do not wait for the disk.
"""

from uuid import uuid4

from bench import payload
from bench.contestants import installed_peers
from bench.contestants.base import Contestant
from bench.contestants.by_hand import EVENTS_PER_STEP, ByHand
from bench.contestants.google_adk import GoogleAdk
from bench.contestants.openai_agents import OpenAIAgents
from bench.contestants.ours import Ours
from bench.databases import Arena
from bench.payload import Step
from bench.place import Place
from bench.results import Results
from bench.scale import Scale

SECTION = "bytes stored"
STEPS = 1000
MESSAGE_BYTES = 300
STATE_BYTES = 100
ROWS: dict[str, tuple[int, dict[str, tuple[str, ...]]]] = {
    "a message": (
        2,
        {
            Ours.name: ("helix_sessions_message",),
            ByHand.name: ("message",),
            OpenAIAgents.name: ("agent_messages",),
            GoogleAdk.name: ("events",),
        },
    ),
    "an event": (EVENTS_PER_STEP, {Ours.name: ("helix_sessions_event",), ByHand.name: ("event",)}),
    "a checkpoint": (
        1,
        {
            Ours.name: ("helix_sessions_checkpoint", "helix_sessions_statesnapshot"),
            ByHand.name: ("checkpoint",),
        },
    ),
}
"""What has rows of its own: how many for each step, in which tables. LangGraph's messages are one value."""

Grown = dict[str, int]


def measure_stored(arena: Arena, scale: Scale, results: Results) -> None:
    """Bytes for each step, and for what has rows of its own."""
    steps = [_step() for _ in range(STEPS)]
    said = sum(len(message["content"]) for step in steps for message in step.messages)
    found = {kind.name: _fill(arena.place, kind, steps) for kind in (ByHand, Ours, *installed_peers())}
    each = {name: [sum(grown.values()) / STEPS] for name, grown in found.items()}
    results.add_numbers(SECTION, "a step", "bytes", each)
    shares = {name: [sum(grown.values()) / said] for name, grown in found.items()}
    results.add_numbers(SECTION, "all, for each byte said", "bytes", shares)
    for what, (count, tables) in ROWS.items():
        sizes = {
            name: [sum(grown[table] for table in tables[name]) / count / STEPS]
            for name, grown in found.items()
            if name in tables
        }
        results.add_numbers(SECTION, what, "bytes", sizes)


def _step() -> Step:
    messages = [payload.message(role, MESSAGE_BYTES) for role in ("user", "assistant")]
    return Step(messages, payload.state(STATE_BYTES, 1))


def _fill(place: Place, kind: type[Contestant], steps: list[Step]) -> Grown:
    place.execute(f"ALTER DATABASE {kind.database} SET synchronous_commit = off")
    try:
        one = kind(place)
        session_id = str(uuid4())
        one.create(session_id)
        before = place.table_bytes(kind.database)
        for step in steps:
            one.step(session_id, step)
        one.close()
    finally:
        place.execute(f"ALTER DATABASE {kind.database} RESET synchronous_commit")
    return {name: size - before.get(name, 0) for name, size in place.table_bytes(kind.database).items()}
