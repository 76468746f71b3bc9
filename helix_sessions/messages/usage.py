"""Tokens and cost out of what agents report, each in its own words."""

from dataclasses import dataclass
from typing import Any

_INPUT = ("input_tokens", "prompt_tokens", "tokens_in", "input")
_OUTPUT = ("output_tokens", "completion_tokens", "tokens_out", "output")
_TOTAL = ("total_tokens", "tokens", "total")
_COST = ("cost", "cost_usd", "total_cost", "total_cost_usd")


@dataclass(slots=True, kw_only=True)
class Usage:
    """What a run, or many, used."""

    input_tokens: float = 0
    output_tokens: float = 0
    other_tokens: float = 0
    """Tokens of reports that give a total alone."""
    cost: float = 0

    @property
    def tokens(self) -> int:
        """All of them."""
        return round(self.input_tokens + self.output_tokens + self.other_tokens)

    def add(self, report: Any) -> None:
        """Count a run's report in; what is no number counts nothing."""
        if not isinstance(report, dict):
            return
        given, made = _number(report, _INPUT), _number(report, _OUTPUT)
        self.input_tokens += given
        self.output_tokens += made
        if not (given or made):
            self.other_tokens += _number(report, _TOTAL)
        self.cost += _number(report, _COST)


def usage_of(report: Any) -> Usage:
    """One run's report."""
    usage = Usage()
    usage.add(report)
    return usage


def _number(report: dict[str, Any], names: tuple[str, ...]) -> float:
    for name in names:
        value = report.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15:
            return float(value)
    return 0


def added(total: dict[str, Any] | None, report: Any) -> dict[str, Any] | None:
    """The sum of two reports: numbers of one name are added up, anything else is the later one's."""
    if not isinstance(report, dict):
        return total
    found = dict(total or {})
    for name, value in report.items():
        before = found.get(name)
        if isinstance(value, dict):
            found[name] = added(before if isinstance(before, dict) else None, value)
        elif _is_number(value) and _is_number(before):
            found[name] = before + value
        else:
            found[name] = value
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
