"""For workers that tests start: with agents of the frameworks that are installed."""

from importlib.util import find_spec

from tests.settings import *  # noqa: F403

HELIX_SESSIONS = {"AGENTS": {"clerk": "tests.agents.pydantic_agents.clerk"}}
if find_spec("agents"):
    HELIX_SESSIONS["AGENTS"]["sdk-clerk"] = "tests.agents.openai_models.clerk"
if find_spec("langgraph"):
    HELIX_SESSIONS["AGENTS"]["graph-clerk"] = "tests.agents.langgraph_graphs.clerk"
