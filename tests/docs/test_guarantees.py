"""The page of guarantees names tests that exist, and every campaign."""

import re

from tests.docs.pages import ROOT, page
from tests.torture.__main__ import CAMPAIGNS

PAGE = page("guarantees.md")


def test_the_tests_behind_the_promises_exist():
    named = re.findall(r"`((?:tests/[\w/]*)?test_\w+\.py|tests/[\w/]+/)`", PAGE.text)

    assert len(named) > 15
    for name in named:
        found = [ROOT / name] if "/" in name else list((ROOT / "tests").rglob(name))
        assert [path for path in found if path.exists()], name


def test_every_campaign_is_told_of():
    figures = PAGE.text.partition("## How the promises were attacked")[2]

    for name in CAMPAIGNS:
        assert f"`{name}`" in figures, name


def test_every_promise_has_its_attack():
    promises = PAGE.text.partition("## Promised")[2].partition("## ")[0]
    bad_days = PAGE.text.partition("## Bad days")[2].partition("## ")[0]
    rows = [line for line in (promises + bad_days).splitlines() if line.startswith("| ")]

    assert len(rows) > 20
    for row in rows:
        attack = row.split("|")[3].strip()
        assert attack in ("attacked by", "test") or re.search(r"`[\w/.]+`", attack), row
