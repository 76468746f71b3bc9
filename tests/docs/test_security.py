"""The security page names tests; they exist, and every risk of the list is answered."""

import ast
import re

import pytest

from tests.docs.pages import ROOT, page

NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", page("security.md").text)))


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str):
    path, _, member = name.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    members = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert not member or (member in members and member.lower().startswith("test")), name
    assert any(found.lower().startswith("test") for found in members)


def test_all_ten_are_answered_with_a_test():
    rows = [cells for cells in page("security.md").rows() if cells[0].startswith("API")]
    assert [cells[0].split()[0] for cells in rows] == [f"API{number}" for number in range(1, 11)]
    for cells in rows:
        assert "`tests/" in cells[-1], cells[0]
