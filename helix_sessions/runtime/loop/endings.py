"""How a run ends that does not come to its end by itself."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from helix_sessions.runtime import errors
from helix_sessions.runtime.budgets import Spent
from helix_sessions.runtime.loop.journal import Journal
from helix_sessions.store.driving.boundaries import Ending
from helix_sessions.store.engine.spending import Standings
from helix_sessions.store.limits import spend_checks
from helix_sessions.values.agents import AgentDefinition


def failed(code: str, error: str | Mapping[str, Any]) -> Ending:
    """With an error, and its session with it."""
    told = dict(error) if isinstance(error, Mapping) else errors.document(code, error)
    return Ending(status="failed", error=told, failure_reason=code)


def budget_exceeded(journal: Journal, definition: AgentDefinition) -> Ending | None:
    """How a run ends whose budget is used up; the session is paused, with its inbox."""
    why = journal.reached(definition.budget)
    return None if why is None else ended_by_budget(why, journal.spent())


def ended_by_budget(why: str, spent: Spent) -> Ending:
    """A run ends because a limit was reached; the session is paused, with its inbox."""
    ending = failed(errors.BUDGET_EXCEEDED, why)
    return replace(ending, session_status="paused", carried=spent.as_document())


def overspent(journal: Journal, usage: Any = None) -> Ending | None:
    """How a run ends that a spend limit holds, as far as that is known here; `usage` is not counted yet."""
    limits = journal.overspent(usage)
    return ended_by_spend(limits, journal.spent()) if limits else None


def ended_by_spend(limits: Standings, spent: Spent) -> Ending:
    """A run ends because nothing is left of spend limits; the session is paused until all of them begin
    anew."""
    ending = failed(errors.SPEND_LIMIT, " ".join(map(spend_checks.words, limits)))
    return replace(
        ending,
        session_status="paused",
        carried=spent.as_document(),
        run_at=spend_checks.next_window(limits),
    )
