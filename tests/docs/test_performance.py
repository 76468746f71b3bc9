"""The published numbers: one run of `bench` makes the page, its charts and the README's rows."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench import other_load, publish
from bench.measure import Spread
from bench.other_load import Clock
from bench.readme import NOT_MEASURED as NONE
from bench.readme import ROWS, readme_rows
from bench.results import Results, Row
from tests.docs.pages import DOCS, ROOT, page
from tests.rows import each

pytestmark = pytest.mark.once

PUBLISHED = Results.from_json(json.loads((DOCS / "performance.json").read_text()))
GOOD: dict[str, Any] = {
    "date": "2026-01-02",
    "processors": 2,
    "load_before": 0.1,
    "load_after": 7.0,
    "python": "3.11",
    "postgresql": "15",
    "sqlite": "3.40",
    "packages": {"Django": "5.2"},
    "quick": False,
    "sections_left_out": [],
    "peers_left_out": [],
    "others": 0.02,
}


def synthetic() -> Results:
    """A run with numbers for every chart and every row of the README."""

    def row(section: str, operation: str, contestant: str, ratio: float) -> Row:
        return Row(
            section, operation, contestant, Spread(1, ratio, 9), "ms", Spread(1, ratio, 9), quiet=ratio
        )

    rows = [
        row("step commit", f"history {length}", name, ratio)
        for length in ("100", "1,000")
        for name, ratio in (("SQL by hand", 1.0), ("ours", 0.5), ("LangGraph PostgresSaver", 21.0))
    ]
    rows += [row("resources per step", "WAL", "Google ADK append_event", 1.0)]
    rows += [row("resources per step", "WAL", "ours", 0.8)]
    rows += [row("throughput", f"writers: {number}", "ours", number) for number in (1, 16)]
    rows += [row("list", f"newest 50 of {number}", "ours", 3.0) for number in ("10,000", "1,000,000")]
    for number in ("50", "200"):
        rows += [
            row("live events", f"commit to frame, {part}, {number} streams", "ours", 2.0)
            for part in ("p50", "p99")
        ]
    rows += [row("loop", "inputs of 1 worker", "ours", 1.0), row("loop", "inputs of 1 worker", "DBOS", 0.25)]
    return Results(rows, dict(GOOD))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of what is written to."""
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path


def test_the_page_and_the_readme_have_the_numbers_of_the_last_published_run():
    performance, readme = page("performance.md").text, page("../README.md").text
    assert publish.filled(performance, publish.blocks(PUBLISHED)) == performance
    assert publish.filled(readme, readme_rows(PUBLISHED)) == readme


def test_a_run_brings_everything_up_to_date(root: Path, monkeypatch: pytest.MonkeyPatch):
    latest = root / "latest.json"
    latest.write_text(json.dumps(synthetic().as_json()))
    monkeypatch.setattr(publish, "LATEST", latest)
    monkeypatch.setattr(publish, "ROOT", root)
    publish.main()
    text, readme = (root / "docs/performance.md").read_text(), (root / "README.md").read_text()
    assert "other processes took 2.0%" in text
    assert "| history 1,000 | LangGraph PostgresSaver | 21.00 |" in text
    pictures = re.findall(r"!\[[^\]]+\]\((images/performance-\w+\.svg)\)", text)
    assert len(pictures) == 4
    drawn = root.glob("docs/images/performance-*.svg")
    assert sorted(pictures) == sorted(f"images/{found.name}" for found in drawn)
    assert f"<!-- step --> | 1 | 42 | {NONE} | {NONE} | {NONE} | 2 <!-- /step -->|" in readme
    assert f"<!-- wal --> | 1 | {NONE} | {NONE} | 1.2 | {NONE} | {NONE} <!-- /wal -->|" in readme
    assert f"<!-- prompts --> | 1 | {NONE} | {NONE} | {NONE} | 0.25 | {NONE} <!-- /prompts -->|" in readme
    assert json.loads((root / "docs/performance.json").read_text()) == synthetic().as_json()
    assert {"step", "wal", "prompts"} == ROWS.keys()


def test_a_chart_that_a_run_has_no_numbers_for_goes(root: Path):
    publish.publish(synthetic(), root)
    shorter = synthetic()
    shorter.rows = [row for row in shorter.rows if row.section != "live events"]
    publish.publish(shorter, root)
    assert not (root / "docs/images/performance-streams.svg").exists()
    assert "performance-streams" not in (root / "docs/performance.md").read_text()


@each(
    ("changed", "reason"),
    [
        ({"quick": True}, "quick"),
        ({"sections_left_out": ["http"]}, "leaves out http"),
        ({"peers_left_out": ["DBOS"]}, "DBOS could not take part"),
        ({"others": 0.4}, "other processes took 40%"),
        ({"others": None}, "does not tell"),
    ],
)
def test_not_every_run_is_published(changed: dict[str, Any], reason: str, root: Path, monkeypatch: Any):
    results = synthetic()
    results.about |= changed
    latest = root / "latest.json"
    latest.write_text(json.dumps(results.as_json()))
    monkeypatch.setattr(publish, "LATEST", latest)
    monkeypatch.setattr(publish, "ROOT", root)
    before = (root / "docs/performance.md").read_text()
    with pytest.raises(SystemExit, match=reason):
        publish.main()
    assert (root / "docs/performance.md").read_text() == before
    assert not publish.reasons_against(GOOD)


def test_without_a_whole_run_nothing_is_published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(publish, "LATEST", tmp_path / "latest.json")
    with pytest.raises(SystemExit, match="no whole run"):
        publish.main()


def test_the_time_of_our_own_processes_is_no_disturbance(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    stat = tmp_path / "stat"
    monkeypatch.setattr(other_load, "_STAT", stat)
    assert Clock.read() is None
    assert other_load.share_since(None) is None

    ours = 10.0
    monkeypatch.setattr(other_load, "_our_seconds", lambda: ours)
    stat.write_text("cpu  1000 0 0 5000 0 0 0 0 0 0\ncpu0 …\n")
    start = Clock.read()
    assert start == Clock(all=60, busy=10, ours=10)
    ours = 55.0
    stat.write_text("cpu  4000 500 1000 9000 400 50 50 0 0 0\ncpu0 …\n")  # 46 s busy of 90 s
    assert other_load.share_since(start) == pytest.approx(1 / 90)


def test_the_frameworks_tests_are_those_of_the_page():
    """The README's numbers of passed and left out tests stand in the page's row of that framework."""
    rows = {
        cells[0].split()[0]: cells
        for line in page("explanation/peers.md").prose.splitlines()
        if line.startswith("| ") and len(cells := [cell.strip() for cell in line.split("|")[1:-1]]) == 6
    }
    readme = page("../README.md").prose
    for name, ours in (
        ("LangGraph", "LangGraph's own"),
        ("OpenAI", "the OpenAI SDK's own"),
        ("Google", "ADK's own"),
    ):
        [found] = re.findall(
            rf"^\| {re.escape(ours)} .*\| (\d+) passed, (\d+) left out \|", readme, re.MULTILINE
        )
        passed, left_out = found
        assert rows[name][3].startswith(f"{passed} passed"), name
        assert rows[name][5] == left_out, name
