"""The agents of the demo: ordinary pydantic-ai agents, named in `HELIX_SESSIONS["AGENTS"]`.

Without a key of a provider in the environment their model follows a script, so that they need no network.
"""

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Card:
    """How the page introduces an agent."""

    agent_type: str
    name: str
    about: str
    suggestions: tuple[str, ...]


CARDS = (
    Card(
        "shop-assistant",
        "Shop assistant",
        "Looks up orders with tools. Refunds wait for your approval.",
        ("Where is order 1042?", "The kettle of order 1042 is broken. I want my money back."),
    ),
    Card(
        "research-desk",
        "Research desk",
        "Hands over to two sub-agents that work side by side, and sums up.",
        ("Should we sell heat pumps in France next year?",),
    ),
    Card(
        "storyteller",
        "Storyteller",
        "Writes long. Its model fails at first and is asked again. Stop it, reload, or kill the worker.",
        ("Tell me the story of the lighthouse and the log book.",),
    ),
)

AGENTS = {
    "shop-assistant": "project.agents.shop.assistant",
    "research-desk": "project.agents.research.desk",
    "market-scout": "project.agents.research.market",
    "policy-scout": "project.agents.research.policy",
    "storyteller": "project.agents.story.teller",
}

_PROVIDERS = {
    "OPENAI_API_KEY": "openai:gpt-5-mini",
    "ANTHROPIC_API_KEY": "anthropic:claude-haiku-4-5",
    "GEMINI_API_KEY": "google:gemini-2.5-flash",
    "GROQ_API_KEY": "groq:openai/gpt-oss-20b",
    "MISTRAL_API_KEY": "mistral:mistral-small-latest",
}


def model_name() -> str | None:
    """The model of a provider that the environment asks for: `HELIX_MODEL`, or by a key; `None`: none."""
    named = os.environ.get("HELIX_MODEL")
    if named:
        return named
    return next((name for key, name in _PROVIDERS.items() if os.environ.get(key)), None)
