"""The security page names tests; they exist, and every risk of the list is answered."""

import ast
import re

from tests.docs.pages import ROOT, page
from tests.rows import each

NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", page("security.md").text)))


@each("name", NAMED)
def test_a_named_test_exists(name: str):
    path, _, member = name.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    members = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert not member or (member in members and member.lower().startswith("test")), name
    assert any(found.lower().startswith("test") for found in members)


def test_all_ten_are_answered_with_a_test():
    rows = [line for line in page("security.md").text.splitlines() if line.startswith("| API")]
    assert [line.split()[1] for line in rows] == [f"API{number}" for number in range(1, 11)]
    for line in rows:
        assert "`tests/" in line.split("|")[-2], line[:40]
