"""For workers that tests start: with an agent."""

from tests.settings import *  # noqa: F403

HELIX_SESSIONS = {"AGENTS": {"noting": "tests.runner.agents.Noting", "shop": "tests.runner.agents.Shop"}}
