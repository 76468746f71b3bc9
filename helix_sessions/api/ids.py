"""Ids in paths. An id may hold any printable character; a path segment may not.

A segment is percent-encoded as usual. Servers decode it before anyone can see whether a slash was
encoded, and clients remove segments of dots, so three characters have another spelling there:
`~1` is `/`, `~0` is `~` (as in JSON Pointer), and `~2` is `.`. Only `~0`, `~1` and `~2` are special.
"""

import re

_WRITTEN = {"~0": "~", "~1": "/", "~2": "."}
_ESCAPE = re.compile(r"~[012]")


def to_segment(value: str) -> str:
    """The id as a path segment, before percent-encoding."""
    if value.strip(".") == "":
        return "~2" * len(value)
    return value.replace("~", "~0").replace("/", "~1")


def from_segment(segment: str) -> str:
    """The id that a decoded path segment stands for."""
    return _ESCAPE.sub(lambda found: _WRITTEN[found[0]], segment)


class IdConverter:
    """`<helix_id:name>` in a route."""

    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        return from_segment(value)

    def to_url(self, value: str) -> str:
        return to_segment(value)
