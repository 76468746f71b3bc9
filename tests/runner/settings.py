"""For workers that tests start: with an agent."""

from tests.settings import *  # noqa: F403

HELIX_SESSIONS = {
    "AGENTS": {name: f"tests.runner.agents.{name.capitalize()}" for name in ("noting", "shop", "hanging")}
}
