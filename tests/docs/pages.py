"""The documentation as tests see it: pages, their code, headings, links and tables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(\s*<?(?P<target>[^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_PICTURE = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^(?P<level>#{1,6}) +(?P<text>.+?) *#*$", re.MULTILINE)
_NOT_IN_SLUG = re.compile(r"[^\w\- ]")


@dataclass(frozen=True)
class Block:
    """A fenced piece of code: its language, the words behind the language, and where it is."""

    language: str
    marks: tuple[str, ...]
    code: str
    line: int
    """The line of the page its first line is on."""


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def prose(self) -> str:
        """The text without its fenced code."""
        return _FENCE.sub("", self.text)

    @cached_property
    def blocks(self) -> list[Block]:
        found = []
        for match in _FENCE.finditer(self.text):
            language, *marks = match["info"].split() or [""]
            line = self.text.count("\n", 0, match.start("code")) + 1
            found.append(Block(language, tuple(marks), match["code"], line))
        return found

    @property
    def links(self) -> list[str]:
        return [match["target"] for match in _LINK.finditer(self.prose)]

    @property
    def pictures(self) -> list[tuple[str, str]]:
        """What each shows in words, and where it is."""
        return [(match["alt"], match["target"]) for match in _PICTURE.finditer(self.prose)]

    @cached_property
    def anchors(self) -> set[str]:
        """The ids a Markdown host gives the headings."""
        anchors: set[str] = set()
        for match in _HEADING.finditer(self.prose):
            slug = _NOT_IN_SLUG.sub("", match["text"].lower()).replace(" ", "-")
            number = 0
            while (anchor := f"{slug}-{number}" if number else slug) in anchors:
                number += 1
            anchors.add(anchor)
        return anchors

    @cached_property
    def sections(self) -> dict[str, str]:
        """What is under each third-level heading, code included, by its text without backquotes."""
        _, *parts = re.split(r"^### +(.+)$", self.text, flags=re.MULTILINE)
        texts = (re.split(r"^#{1,2} ", text, flags=re.MULTILINE)[0] for text in parts[1::2])
        return dict(zip((heading.strip("` ") for heading in parts[::2]), texts, strict=True))

    def rows(self) -> Iterator[list[str]]:
        """The cells of each table row, header and rule excepted."""
        for line in self.prose.splitlines():
            if line.startswith("| `"):
                yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]

    def first_cells(self) -> list[str]:
        """The names tables explain, without backquotes."""
        return [cells[0].strip("`") for cells in self.rows()]


def all_pages() -> list[Page]:
    """The README and every page of `docs/`."""
    return [Page(ROOT / "README.md"), Page(ROOT / "CHANGELOG.md"), *map(Page, sorted(DOCS.rglob("*.md")))]


def page(name: str) -> Page:
    """A page of `docs/`."""
    return Page(DOCS / name)
