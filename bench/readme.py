"""The rows of the README's table that a run has numbers for."""

from bench.contestants.by_hand import ByHand
from bench.contestants.google_adk import GoogleAdk
from bench.contestants.langgraph import LangGraph
from bench.contestants.openai_agents import OpenAIAgents
from bench.contestants.ours import Ours
from bench.results import Results

NOT_MEASURED = "\N{EN DASH}"
COLUMNS = (Ours.name, LangGraph.name, OpenAIAgents.name, GoogleAdk.name, "DBOS", ByHand.name)
ROWS = {
    "step": ("step commit", "history 1,000"),
    "wal": ("resources per step", "WAL"),
    "prompts": ("loop", "inputs of 1 worker"),
}
"""Which operation each row compares, by the name of its marks."""


def readme_rows(results: Results) -> dict[str, str]:
    """The cells of each row: how many times ours, or a dash for what was not measured."""
    return {name: f" | {' | '.join(_cells(results, *where))} " for name, where in ROWS.items()}


def _cells(results: Results, section: str, operation: str) -> list[str]:
    found = [results.find(section, operation, name) for name in COLUMNS]
    ratios = [None if row is None or row.ratio is None else row.ratio.middle for row in found]
    ours = ratios[0]
    return [NOT_MEASURED if ratio is None or ours is None else _times(ratio / ours) for ratio in ratios]


def _times(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio == 1 or ratio >= 10 else f"{ratio:.2g}"
