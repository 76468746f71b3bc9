"""A runtime, a session made with it, and an ear for its signals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from helix_sessions import signals
from helix_sessions.runtime import AgentDefinition, AgentSession, Budget, SessionRuntime

NAMES = (
    "session_loaded",
    "session_load_failed",
    "session_action_executed",
    "session_saved",
    "session_save_failed",
)

DEFINITION = AgentDefinition(
    "support",
    label="Support",
    system_prompt="Be kind.",
    model="small",
    budget=Budget(max_steps=5),
    metadata={"team": "north"},
)


@pytest.fixture
def runtime() -> SessionRuntime:
    return SessionRuntime()


@pytest.fixture
def session(runtime: SessionRuntime) -> AgentSession:
    """A session `s` at version 1."""
    return runtime.create(DEFINITION, session_id="s")


class Heard(list[tuple[str, dict[str, Any]]]):
    """What was told since, in order."""

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self]


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Every signal with its sender and arguments."""
    found = Heard()
    receivers = {}

    def listen(name: str) -> Any:
        def receive(sender: Any, signal: Any, **told: Any) -> None:
            found.append((name, {"sender": sender, **told}))

        return receive

    for name in NAMES:
        receivers[name] = listen(name)
        getattr(signals, name).connect(receivers[name])
    yield found
    for name, receive in receivers.items():
        getattr(signals, name).disconnect(receive)
