"""`python -m bench.publish`: put the last whole run into the documentation: page, charts, numbers, README.

A run that is not whole, or was disturbed by other processes, is refused.
"""

import json
import re
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.charts import TITLES, charts
from bench.other_load import MOST
from bench.readme import readme_rows
from bench.report import number
from bench.results import Results, Row
from bench.scale import FULL
from bench.stored import SECTION as STORED
from bench.targets import MISSED, Target, targets

ROOT = Path(__file__).parent.parent
LATEST = ROOT / "bench" / "results" / "latest.json"


def main() -> None:
    if not LATEST.exists():
        sys.exit("There is no whole run. Make one: python -m bench")
    results = Results.from_json(json.loads(LATEST.read_text()))
    if reasons := reasons_against(results.about):
        sys.exit(f"Not published: {'; '.join(reasons)}.")
    publish(results, ROOT)


def reasons_against(about: dict[str, Any]) -> list[str]:
    """Why a run must not be published; none if it may."""
    reasons = []
    if about["quick"]:
        reasons.append("it is a quick run")
    if about["sections_left_out"]:
        reasons.append(f"it leaves out {', '.join(about['sections_left_out'])}")
    if about["peers_left_out"]:
        reasons.append(f"{', '.join(about['peers_left_out'])} could not take part")
    others = about["others"]
    if others is None:
        reasons.append("this system does not tell whether other processes disturbed it")
    elif others > MOST:
        reasons.append(f"other processes took {others:.0%} of the processors, {MOST:.0%} at most are allowed")
    return reasons


def publish(results: Results, root: Path) -> None:
    """Write the page, its charts and numbers, and the README's rows, below this folder."""
    page, readme, numbers = root / "docs/performance.md", root / "README.md", root / "docs/performance.json"
    page.write_text(filled(page.read_text(), {"about": about_run(results), **blocks(results)}))
    readme.write_text(filled(readme.read_text(), readme_rows(results)))
    numbers.write_text(json.dumps(results.as_json(), indent=1) + "\n")
    pictures = root / "docs/images"
    for old in pictures.glob("performance-*.svg"):
        old.unlink()
    for name, picture in charts(results).items():
        (pictures / f"performance-{name}.svg").write_text(picture)


def filled(text: str, parts: dict[str, str]) -> str:
    """The text with each part between the marks of its name."""
    for name, part in parts.items():
        marks = re.compile(f"(<!-- {name} -->).*?(<!-- /{name} -->)", re.DOTALL)
        text, times = marks.subn(lambda mark, part=part: mark[1] + part + mark[2], text)  # type: ignore[misc]
        if times != 1:
            raise ValueError(f"The marks of {name} are there {times} times, not once.")
    return text


def blocks(results: Results) -> dict[str, str]:
    """What follows from the rows of a run, by the name of its marks in the page."""
    parts = {
        "charts": _charts(results),
        "targets": _targets(targets(results, FULL)),
        "tables": _tables(results.rows),
    }
    return {name: f"\n{part}\n" for name, part in parts.items()}


def about_run(results: Results) -> str:
    """What a run was made on, and how quiet it was there."""
    about = results.about
    packages = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    return (
        f"\n{about['date']}, {about['processors']} processors, of whose time other processes took"
        f" {about['others']:.1%}; load {about['load_before']} before and {about['load_after']} after,"
        f" most of it the benchmark's own. Python {about['python']}, PostgreSQL {about['postgresql']},"
        f" SQLite {about['sqlite']}, {packages}.\n"
    )


def _charts(results: Results) -> str:
    return "\n\n".join(f"![{TITLES[name]}](images/performance-{name}.svg)" for name in charts(results))


def _targets(found: list[Target]) -> str:
    lines = ["| what | measured | quiet | target | |", "|---|---|---|---|---|"]
    for target in found:
        measured = "" if target.measured is None else f"{target.measured:.2f}"
        quiet = "" if target.quiet is None else f"{target.quiet:.2f}"
        sign = "≥" if target.at_least else "≤"
        verdict = target.verdict.lower()
        if target.why and target.verdict == MISSED:
            verdict += f": {target.why}"
        lines.append(f"| {target.what} | {measured} | {quiet} | {sign} {target.limit:g} | {verdict} |")
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
