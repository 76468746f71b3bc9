"""`python -m bench.publish`: put the last run's tables, chart and numbers into the documentation."""

import json
import re
from itertools import groupby
from pathlib import Path

from bench.bars import Bar, bars
from bench.charts import charts
from bench.report import number
from bench.results import Results, Row
from bench.scale import FULL, QUICK
from bench.stored import SECTION as STORED

LATEST = Path(__file__).parent / "results" / "latest.json"
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
IMAGES = PAGE.parent / "images"


def main() -> None:
    results = Results.from_json(json.loads(LATEST.read_text()))
    found = bars(results, QUICK if results.about["quick"] else FULL)
    page = PAGE.read_text()
    for name, text in {
        "about": _about(results),
        "bars": _bars(found),
        "tables": _tables(results.rows),
    }.items():
        marks = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        page = marks.sub(lambda mark, text=text: f"{mark[1]}{text}\n{mark[2]}", page)  # type: ignore[misc]
    PAGE.write_text(page)
    for name, picture in charts(results).items():
        (IMAGES / f"performance-{name}.svg").write_text(picture)
    PAGE.with_suffix(".json").write_text(json.dumps(results.as_json(), indent=1) + "\n")


def _about(results: Results) -> str:
    about = results.about
    packages = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    return (
        f"{about['date']}, {about['processors']} processors, load {about['load_before']} before and"
        f" {about['load_after']} after, Python {about['python']}, PostgreSQL {about['postgresql']},"
        f" SQLite {about['sqlite']}, {packages}."
    )


def _bars(found: list[Bar]) -> str:
    lines = ["| what | measured | quiet | bar | |", "|---|---|---|---|---|"]
    for bar in found:
        measured = "" if bar.measured is None else f"{bar.measured:.2f}"
        quiet = "" if bar.quiet is None else f"{bar.quiet:.2f}"
        sign = "≥" if bar.at_least else "≤"
        lines.append(f"| {bar.what} | {measured} | {quiet} | {sign} {bar.limit:g} | {bar.verdict.lower()} |")
    return "\n".join(lines)


def _tables(rows: list[Row]) -> str:
    """What was measured, in this order; first what takes time."""
    lines = []
    in_order = sorted(rows, key=lambda row: row.section == STORED)
    for section, members in groupby(in_order, key=lambda row: row.section):
        lines += [
            f"### {section[0].upper()}{section[1:]}",
            "",
            "| operation | who | ratio | quartiles | quiet | median |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_table_row(row) for row in members]
        lines.append("")
    return "\n".join(lines).rstrip()


def _table_row(row: Row) -> str:
    ratio, quartiles = "", ""
    if row.ratio is not None:
        ratio, quartiles = number(row.ratio.middle), f"{number(row.ratio.low)} to {number(row.ratio.high)}"
    quiet = "" if row.quiet is None else number(row.quiet)
    value = f"{number(row.value.middle)} {row.unit}".strip()
    return f"| {row.operation} | {row.contestant} | {ratio} | {quartiles} | {quiet} | {value} |"


if __name__ == "__main__":
    main()
