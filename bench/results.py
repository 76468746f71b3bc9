"""What was measured, as rows that a report, a chart and the targets can look up."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.measure import Spread, Timing, ratio

BASE = "SQL by hand"


@dataclass(frozen=True)
class Row:
    """One contestant at one operation. `ratio` is to the SQL by hand, or to what `against` names.

    `quiet` is the ratio of the first deciles. On a machine that has other work to do it says more than
    the medians; where it is far from `ratio`, the run was disturbed.
    """

    section: str
    operation: str
    contestant: str
    value: Spread
    unit: str
    ratio: Spread | None = None
    against: str = BASE
    quiet: float | None = None


@dataclass
class Results:
    """Rows in the order they were measured, and what the run was made on."""

    rows: list[Row] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)

    def add_timings(
        self,
        section: str,
        operation: str,
        timings: dict[str, Timing],
        base: str = BASE,
        *,
        only: str | None = None,
    ) -> None:
        """Add a row for each contestant of an interleaved measurement, or for one of them."""
        for name, timing in timings.items():
            if only not in (None, name):
                continue
            value = Spread.of(timing.seconds).scaled(1000)
            against, quiet = None, None
            if base in timings:
                against = ratio(timing, timings[base])
                quiet = timing.quiet / timings[base].quiet
            self.rows.append(Row(section, operation, name, value, "ms", against, base, quiet))

    def add_numbers(
        self,
        section: str,
        operation: str,
        unit: str,
        numbers: Mapping[str, Iterable[float]],
        base: str = BASE,
    ) -> None:
        """Add a row for each contestant of numbers that were taken in rounds."""
        rounds = {name: list(values) for name, values in numbers.items()}
        for name, values in rounds.items():
            against = None
            if base in rounds and all(rounds[base]):
                against = Spread.of([a / b for a, b in zip(values, rounds[base], strict=True)])
            self.rows.append(Row(section, operation, name, Spread.of(values), unit, against, base))

    def find(self, section: str, operation: str, contestant: str) -> Row | None:
        """The row that was measured, if it was."""
        for row in self.rows:
            if (row.section, row.operation, row.contestant) == (section, operation, contestant):
                return row
        return None

    def as_json(self) -> dict[str, Any]:
        return {"about": self.about, "rows": [asdict(row) for row in self.rows]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Results":
        """What `as_json` gave."""
        rows = []
        for row in data["rows"]:
            ratio = row["ratio"] and Spread(**row["ratio"])
            rows.append(Row(**{**row, "value": Spread(**row["value"]), "ratio": ratio}))
        return cls(rows, data["about"])
