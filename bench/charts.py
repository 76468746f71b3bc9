"""The charts of a run, each out of rows that the tables have as well."""

import re
from collections.abc import Callable

from bench.results import Results, Row
from bench.svg import Axis, Line, from_zero, line_chart, powers_of_ten

TITLES = {
    "step": "Time of a step commit (logarithmic)",
    "writers": "Steps a second of all writers",
    "streams": "From commit to frame (logarithmic)",
    "listing": "The newest 50 sessions",
}


def charts(results: Results) -> dict[str, str]:
    """A picture for each chart that the run has numbers for, by name."""
    drawn = {name: draw(results) for name, draw in CHARTS.items()}
    return {name: picture for name, picture in drawn.items() if picture is not None}


def step(results: Results) -> str | None:
    """What a step costs against the length of the history."""
    rows = _numbered(results, "step commit", r"history ([\d,]+)$")
    lengths = sorted({length for length, _ in rows})
    if len(lengths) < 2:
        return None
    at = {length: float(place) for place, length in enumerate(lengths)}
    lines = _lines([(at[length], row) for length, row in rows])
    x = Axis("messages in the history", list(at.values()), names=[f"{length:,.0f}" for length in lengths])
    return line_chart(TITLES["step"], x, powers_of_ten("ms", _heights(lines)), lines)


def writers(results: Results) -> str | None:
    """How many steps all writers commit together."""
    rows = _numbered(results, "throughput", r"writers: (\d+)$")
    return _by_size(rows, TITLES["writers"], "processes that write", "steps/s")


def streams(results: Results) -> str | None:
    """From the commit of an event to its frame at a reader."""
    rows = {
        quantile: _numbered(results, "live events", rf"commit to frame, {quantile}, ([\d,]+) streams$")
        for quantile in ("p50", "p99")
    }
    numbers = sorted({number for some in rows.values() for number, _ in some})
    if len(numbers) < 2:
        return None
    lines = [
        Line(quantile, [(number, row.value.middle) for number, row in some])
        for quantile, some in rows.items()
    ]
    x = Axis("streams that one process serves", numbers, is_logarithmic=True)
    y = powers_of_ten("ms", _heights(lines))
    return line_chart(TITLES["streams"], x, y, lines)


def listing(results: Results) -> str | None:
    """What the newest fifty cost among few and many."""
    rows = _numbered(results, "list", r"newest 50 of ([\d,]+)$")
    return _by_size(rows, TITLES["listing"], "sessions in the table", "ms")


def _by_size(rows: list[tuple[float, Row]], title: str, sizes: str, unit: str) -> str | None:
    """All contestants against what is counted, if that was measured at two sizes."""
    ticks = sorted({size for size, _ in rows})
    if len(ticks) < 2:
        return None
    lines = _lines(rows)
    x = Axis(sizes, ticks, is_logarithmic=True)
    return line_chart(title, x, from_zero(unit, _heights(lines)), lines)


CHARTS: dict[str, Callable[[Results], str | None]] = {
    "step": step,
    "writers": writers,
    "streams": streams,
    "listing": listing,
}


def _numbered(results: Results, section: str, operation: str) -> list[tuple[float, Row]]:
    """Rows of a section by the number in the name of their operation."""
    found = []
    for row in results.rows:
        matched = re.match(operation, row.operation) if row.section == section else None
        if matched:
            found.append((float(matched[1].replace(",", "")), row))
    return found


def _lines(points: list[tuple[float, Row]]) -> list[Line]:
    """A line for each contestant, ours first; of one that was measured once it is a point."""
    names = dict.fromkeys(row.contestant for _, row in points)
    return [
        Line(name, sorted((x, row.value.middle) for x, row in points if row.contestant == name))
        for name in sorted(names, key=lambda name: (not name.startswith("ours"), list(names).index(name)))
    ]


def _heights(lines: list[Line]) -> list[float]:
    return [height for line in lines for _, height in line.points]
