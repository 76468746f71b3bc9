"""Links lead somewhere, and every page can be found from the map."""

import os
import re

from django.core.management import get_commands

from tests.docs.pages import DOCS, ROOT, Page, all_pages, page
from tests.rows import each
from tools.docs_site import REPOSITORY

PAGES = all_pages()
WITH_LINKS = [
    *PAGES,
    *(Page(ROOT / name) for name in ("CONTRIBUTING.md", "SECURITY.md")),
    *map(Page, sorted((ROOT / "examples").rglob("*.md"))),
    *map(Page, sorted((ROOT / "tests").glob("*/*.md"))),
]
MAPPED = [
    found for found in PAGES if found.path.parent.name in ("how-to", "operations", "reference", "explanation")
]


@each("found", WITH_LINKS, ids=lambda found: found.name)
def test_links_resolve(found: Page):
    for link in found.links:
        target = link.removeprefix(f"{REPOSITORY}/blob/main/")
        if target != link:
            target = os.path.relpath(ROOT / target, found.path.parent)
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (found.path.parent / path).resolve() if path else found.path
        assert file.is_relative_to(ROOT), f"{target} leads out of the project"
        assert file.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in Page(file).anchors, f"{target} leads to no heading"


@each("found", MAPPED, ids=lambda found: found.name)
def test_the_map_has_every_page(found: Page):
    targets = {(DOCS / target.partition("#")[0]).resolve() for target in page("index.md").links}
    assert found.path.resolve() in targets


@each("found", [*PAGES, Page(ROOT / "CONTRIBUTING.md")], ids=lambda found: found.name)
def test_commands_exist(found: Page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    code = " \n".join([*re.findall(r"`([^`\n]+)`", found.prose), *(block.code for block in found.blocks)])
    assert set(re.findall(r"\bmake ([a-z-]+)", code)) <= targets
    assert set(re.findall(r"\bmanage\.py ([a-z_]+)", code)) <= set(get_commands())


@each("found", PAGES, ids=lambda found: found.name)
def test_a_page_begins_with_its_title(found: Page):
    assert re.match(r"# \S", found.text)
    assert len(re.findall(r"^# ", found.prose, re.MULTILINE)) == 1
