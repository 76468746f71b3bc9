"""A project whose owners run two sessions at once."""

from tests.runner.settings import *  # noqa: F403

HELIX_SESSIONS = {"AGENTS": {"sleepy": "tests.runner.agents.Sleepy"}, "CONCURRENCY": {"owner": 2}}
