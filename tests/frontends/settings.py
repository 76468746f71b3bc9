"""For web servers that tests start: they are asked who may approve what."""

from tests.settings import *  # noqa: F403

HELIX_SESSIONS = {"AGENTS": {"writer": "tests.frontends.agents.writer"}}
ROOT_URLCONF = "tests.frontends.urls"
