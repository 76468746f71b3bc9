"""People who spend, agents that cost, and a clock that can be set."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from helix_sessions import models, signals
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.types import TurnOutcome

ZONE = "America/New_York"


def costs(usd: float, tokens: int = 0, said: Any = "done") -> TurnOutcome:
    """An answer that costs."""
    message = {"role": "assistant", "content": said} if isinstance(said, str) else said
    return TurnOutcome(message, usage={"cost": usd, "input_tokens": tokens, "output_tokens": 0})


def working(turns: int, usd: float, tokens: int = 0) -> ScriptedAgent:
    """An agent that calls a tool in every turn but the last, each turn at this price."""
    script = [costs(usd, tokens, calls("tool")) for _ in range(turns - 1)]
    return ScriptedAgent([*script, costs(usd, tokens)], tools={"tool": lambda arguments, turn: 1})


@pytest.fixture
def ada() -> Any:
    return get_user_model().objects.create_user("ada")


@pytest.fixture
def bob() -> Any:
    return get_user_model().objects.create_user("bob")


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Callable[[str], datetime]:
    """Set the clock to a time in New York, which is the project's zone."""
    settings.TIME_ZONE = ZONE

    def set_clock(local: str) -> datetime:
        moment = datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(ZONE))
        monkeypatch.setattr(timezone, "now", lambda: moment)
        return moment

    return set_clock


@pytest.fixture
def warned() -> Iterator[list[tuple[Any, ...]]]:
    """What the signal has told."""
    heard: list[tuple[Any, ...]] = []

    def receive(sender: Any, scope: str, key: Any, window: str, **_: Any) -> None:
        assert sender is models.Session
        heard.append((scope, key, window))

    signals.spend_warning.connect(receive)
    yield heard
    signals.spend_warning.disconnect(receive)
