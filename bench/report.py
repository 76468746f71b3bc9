"""The tables a reader sees: ratios first."""

from itertools import groupby

from bench.measure import Spread
from bench.results import Results, Row


def lines(rows: list[Row]) -> list[str]:
    """Rows as a text table, one block for each section."""
    found = []
    for section, members in groupby(rows, key=lambda row: row.section):
        found += [
            "",
            f"== {section} ==",
            f"{'operation':34}{'contestant':28}{'ratio':>7}  {'quartiles':15}{'quiet':7}value",
        ]
        for operation, same in groupby(members, key=lambda row: row.operation):
            found += [_line(row, operation) for row in same]
    return found


def _line(row: Row, operation: str) -> str:
    ratio, quartiles = "", ""
    quiet = "" if row.quiet is None else number(row.quiet)
    if row.ratio is not None:
        ratio, quartiles = number(row.ratio.middle), f"{number(row.ratio.low)}-{number(row.ratio.high)}"
    return (
        f"{operation:34}{row.contestant:28}{ratio:>7}  {quartiles:15}{quiet:7}{_value(row.value, row.unit)}"
    )


def _value(value: Spread, unit: str) -> str:
    return f"{number(value.middle)} {unit} ({number(value.low)}-{number(value.high)})"


def number(value: float) -> str:
    """Two or three digits that matter."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"


def show(results: Results, start: int = 0) -> None:
    """Print the rows from `start` on."""
    print("\n".join(lines(results.rows[start:])), flush=True)
