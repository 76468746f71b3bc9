"""Tokens and cost out of what agents report, each in its own words."""

from dataclasses import dataclass
from typing import Any

from helix_sessions.types import UsageTotals

_INPUT = ("input_tokens", "prompt_tokens", "tokens_in", "input")
_OUTPUT = ("output_tokens", "completion_tokens", "tokens_out", "output")
_TOTAL = ("total_tokens", "tokens", "total")
_COST = ("cost", "cost_usd", "total_cost", "total_cost_usd")
_CACHE_READ = ("cache_read_tokens", "cache_read_input_tokens", "cached_tokens", "cached_input_tokens")
_CACHE_WRITE = ("cache_write_tokens", "cache_creation_input_tokens", "cache_creation_tokens")
_REASONING = ("reasoning_tokens", "reasoning_output_tokens")
_DETAILS = (
    *("prompt_tokens_details", "input_tokens_details"),
    *("completion_tokens_details", "output_tokens_details", "details"),
)
"""Where providers put what the totals are made of."""


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


def totals_of(report: Any) -> UsageTotals:
    """One report, of any provider, as the six fields."""
    if not isinstance(report, dict):
        return UsageTotals()
    inner = [report[name] for name in _DETAILS if isinstance(report.get(name), dict)]

    def tokens(names: tuple[str, ...]) -> int:
        return int(next(filter(None, (_number(each, names) for each in (report, *inner))), 0))

    return UsageTotals(
        input_tokens=int(_number(report, _INPUT)),
        output_tokens=int(_number(report, _OUTPUT)),
        cache_read_tokens=tokens(_CACHE_READ),
        cache_write_tokens=tokens(_CACHE_WRITE),
        reasoning_tokens=tokens(_REASONING),
        cost=_number(report, _COST),
    )


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
