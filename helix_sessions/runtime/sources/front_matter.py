"""The fields that a Markdown file begins with, between two lines of `---`."""

import re
from collections.abc import Iterator

_FIELD = re.compile(r"([A-Za-z_][\w-]*):(?:[ \t]+(.*))?$")


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """The fields and the rest. Of YAML the texts are read that skills are described by: plain, quoted, over
    several lines, and blocks with `|` or `>`."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return {}, text
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        return {}, text
    return dict(_fields(lines[1:end])), "\n".join(lines[end + 1 :]).strip()


def _fields(lines: list[str]) -> Iterator[tuple[str, str]]:
    number = 0
    while number < len(lines):
        found = _FIELD.match(lines[number])
        number += 1
        if found is None:
            continue
        more: list[str] = []
        while number < len(lines) and (not lines[number].strip() or lines[number][0] in " \t"):
            more.append(lines[number].strip())
            number += 1
        yield found[1], _value((found[2] or "").strip(), more)


def _value(first: str, more: list[str]) -> str:
    if first[:1] in ("|", ">"):
        return ("\n" if first[0] == "|" else " ").join(more).strip()
    text = " ".join([first, *more]).strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text
