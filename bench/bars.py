"""What we want to reach, and whether this run did."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.results import Results
from bench.scale import Scale

Measured = Callable[[Results], float | None]


@dataclass(frozen=True)
class Bar:
    """A number of a run and its limit, from above or from below."""

    what: str
    measured: float | None
    limit: float
    at_least: bool = False

    @property
    def reached(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        if self.measured is None:
            return f"{self.what:58}{'':>8}  {sign} {self.limit:g}  not measured"
        verdict = "reached" if self.reached else "NOT REACHED"
        return f"{self.what:58}{self.measured:8.2f}  {sign} {self.limit:g}  {verdict}"


def bars(results: Results, scale: Scale) -> list[Bar]:
    """Every bar, with what was measured."""

    def ratio(section: str, operation: str, contestant: str = "ours") -> float | None:
        row = results.find(section, operation, contestant)
        return None if row is None or row.ratio is None else row.ratio.middle

    def value(section: str, operation: str) -> float | None:
        row = results.find(section, operation, "ours")
        return None if row is None else row.value.middle

    def ahead(peer: str) -> float | None:
        theirs = ratio("step commit", "history 1,000", peer)
        ours = ratio("step commit", "history 1,000")
        return None if theirs is None or ours is None else theirs / ours

    longest, large, small = max(scale.histories), scale.large_list, scale.small_list
    full = f"all {scale.long_history:,} messages"
    return [
        Bar("step commit / FLOOR, history 100", ratio("step commit", "history 100"), 0.75),
        Bar(f"step commit, {longest:,} / 0 messages", ratio("step commit", f"{longest:,} against 0"), 1.10),
        Bar("16 writers, throughput / FLOOR", ratio("throughput", "16 writers"), 0.9, True),
        Bar("step commit 1 ms away / FLOOR", ratio("step commit, 1 ms away", "history 100"), 0.6),
        Bar("WAL bytes per step / FLOOR", ratio("resources per step", "WAL"), 1.2),
        Bar("append / FLOOR", ratio("operations", "append 2 messages"), 0.9),
        Bar("latest 50 / FLOOR", ratio("operations", "latest 50 messages"), 1.2),
        Bar(f"{full} / FLOOR", ratio("operations", full), 1.2),
        Bar(f"list 50 of {large:,} / of {small:,}", ratio("list", f"{large:,} against {small:,}"), 1.3),
        Bar("SQLite step commit / sqlite3", ratio("SQLite", "step commit, history 100"), 2.0),
        Bar("OpenAI SQLAlchemySession / ours, history 1,000", ahead("OpenAI SQLAlchemySession"), 3, True),
        Bar("Google ADK / ours, history 1,000", ahead("Google ADK append_event"), 8, True),
        Bar("LangGraph PostgresSaver / ours, history 1,000", ahead("LangGraph PostgresSaver"), 25, True),
        Bar("MB stored, 1 MB state, 1,000 steps", value("growth", "stored in 1,000 steps"), 20),
    ]
