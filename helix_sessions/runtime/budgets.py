"""What an agent may use: the limits of its budget, and what is left of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.utils import timezone

from helix_sessions.messages.usage import usage_of
from helix_sessions.store.driving.trees import Tree
from helix_sessions.values.agents import Budget, narrower, optional


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What an activity has used, from the prompt that opened it on."""

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cost: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            steps=self.steps + other.steps,
            tokens=self.tokens + other.tokens,
            seconds=self.seconds + other.seconds,
            cost=self.cost + other.cost,
        )

    def as_document(self) -> dict[str, Any]:
        return {"steps": self.steps, "tokens": self.tokens, "seconds": self.seconds, "cost": self.cost}


def used(found: Sequence[float]) -> Spent:
    """Steps, tokens and cost that others have used."""
    steps, tokens, cost = found
    return Spent(steps=int(steps), tokens=int(tokens), cost=cost)


def spent_of(document: Any) -> Spent:
    """What a run says that its activity had used before."""
    known = document if isinstance(document, dict) else {}
    return Spent(**{name: known[name] for name in ("steps", "tokens", "seconds", "cost") if name in known})


def spent(*, steps: int, usage: Any, seconds: float) -> Spent:
    """What one run has used."""
    used = usage_of(usage)
    return Spent(steps=steps, tokens=used.tokens, seconds=seconds, cost=used.cost)


def of_agent(agent: Any) -> Budget | None:
    """The budget that an agent has itself, for sessions without one."""
    return optional(Budget, getattr(agent, "budget", None))


_LIMITS = {"max_steps": "steps", "max_tokens": "tokens", "max_seconds": "seconds", "max_cost": "cost"}


def reached(budget: Budget | None, used: Spent, now: datetime | None = None) -> str | None:
    """The limit that was reached, if one was."""
    if budget is None:
        return None
    for name, of in _LIMITS.items():
        limit = getattr(budget, name)
        if limit is not None and getattr(used, of) >= limit:
            return f"{name} of {limit} was reached"
    if budget.deadline is not None and (now or timezone.now()) >= budget.deadline:
        return f"The deadline of {budget.deadline.isoformat()} has passed"
    return None


def reached_in_tree(budget: Budget | None, own: Spent, tree: Tree) -> str | None:
    """The limit that a session has reached with those below, or that it shares and all have reached."""
    why = reached(budget, own + used(tree.below))
    for share in tree.above:
        if why is None and (shared := reached(share.budget, spent_of(share.spent) + used(share.below))):
            why = f"Of the budget of an agent above: {shared}"
    return why


def left_in_tree(budget: Budget | None, own: Spent, tree: Tree) -> Budget | None:
    """What is left of a budget, and of those it shares."""
    rest = left(budget, own + used(tree.below))
    for share in tree.above:
        rest = narrower(rest, left(share.budget, spent_of(share.spent) + used(share.below)))
    return rest


def left(budget: Budget | None, used: Spent) -> Budget | None:
    """The budget with what is left in place of its limits."""
    if budget is None:
        return None
    limits = {name: getattr(budget, name) for name in _LIMITS}
    remaining = {
        name: max(limit - getattr(used, of), 0)
        for name, of in _LIMITS.items()
        if (limit := limits[name]) is not None
    }
    return replace(budget, **remaining)
