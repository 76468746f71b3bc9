"""Pure functions on documents: path-level writes, JSON Patch, and the writes between two documents.

A write names a place in a document and what to do there:

    {"op": "set", "path": ["user", "name"], "value": "Ada"}
    {"op": "append", "path": ["items"], "values": [1, 2]}
    {"op": "insert", "path": ["items", 0], "value": 0}
    {"op": "delete", "path": ["draft"]}

Nothing here knows about the database.
"""

from helix_sessions.writes.apply import apply_writes
from helix_sessions.writes.diffs import diff
from helix_sessions.writes.steps import Write, parse_writes

__all__ = ["Write", "apply_writes", "diff", "parse_writes"]
