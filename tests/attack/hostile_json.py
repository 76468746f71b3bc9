"""Bodies that nobody means well with: JSON of every shape, almost JSON, and what is none."""

import json
import random
from typing import Any

NUMBERS = (0, -0.0, 1e308, -1e-308, 10**400, -(2**63), 2**64, 1.5, True)
TEXTS = (
    "",
    "\x00",
    "\u202e",
    "\ud83d\ude00",
    "a" * 300,
    "../../etc/passwd",
    "' OR 1=1; --",
    "<script>alert(1)</script>",
    "{{7*7}}",
    "${jndi:ldap://x}",
    "%s%s%s%n",
    "\u0130",
    "nul",
    "__proto__",
    "9" * 5_000,
)
KEYS = [
    "messages",
    "role",
    "content",
    "session_id",
    "agent_type",
    "custom_state",
    "writes",
    "op",
    "path",
    "value",
    "status",
    "expected_statuses",
    "new_status",
    "append_messages",
    "state",
    "checkpoint_meta",
    "checkpoint_id",
    "step_id",
    "tool_call_id",
    "metadata",
    "tags",
    "refs",
    "sub_session_id",
    "new_id",
    "message_count",
    "count",
    "run_id",
    "usage",
    "output",
    "error",
    "reason",
    "type",
    "data",
    "turn_id",
    "older_than_seconds",
    "expires_at",
    "owner",
    "mode",
    "parent_session_id",
    "__class__",
    "constructor",
]
RAW = (
    b"",
    b"\xff\xfe\x00",
    b"\xef\xbb\xbf{}",
    b"{",
    b"}",
    b"[" * 100_000,
    b'{"a":' * 20_000,
    b"NaN",
    b"[Infinity]",
    b'{"a": 1e999999}',
    b'{"a":1,"a":2}',
    b'"\\ud800"',
    b'{"messages":[{"role":"user","content":"\\ud800"}]}',
    b'{"a":"\x00"}',
    b"null",
    b"1" * 100_000,
    b"// {}",
    b"{'a': 1}",
    b"<xml/>",
)


def value(rng: random.Random, depth: int = 0) -> Any:
    """Any JSON value, mostly with the names that the API knows."""
    kind = rng.random()
    if depth > 4 or kind < 0.25:
        return rng.choice(TEXTS)
    if kind < 0.4:
        return rng.choice(NUMBERS)
    if kind < 0.45:
        return None
    if kind < 0.65:
        return [value(rng, depth + 1) for _ in range(rng.randrange(5))]
    if kind < 0.68:
        return _nested(rng, rng.choice((20, 400, 600)))
    return {rng.choice([*KEYS, rng.choice(TEXTS)]): value(rng, depth + 1) for _ in range(rng.randrange(7))}


def _nested(rng: random.Random, levels: int) -> Any:
    found: Any = rng.choice(TEXTS)
    for _ in range(levels):
        found = [found] if rng.random() < 0.5 else {"a": found}
    return found


def mutated(rng: random.Random, body: Any) -> Any:
    """A body that the address takes, with something in it replaced, removed or added."""
    if isinstance(body, dict) and body and rng.random() < 0.85:
        copy = dict(body)
        name = rng.choice(list(copy))
        if rng.random() < 0.2:
            del copy[name]
        else:
            copy[name] = mutated(rng, copy[name])
        if rng.random() < 0.3:
            copy[rng.choice(KEYS)] = value(rng)
        return copy
    if isinstance(body, list) and body and rng.random() < 0.7:
        return [mutated(rng, item) if rng.random() < 0.7 else item for item in body]
    return value(rng)


def body(rng: random.Random, known: Any) -> bytes:
    """The bytes of one hostile request."""
    kind = rng.random()
    if kind < 0.12:
        return rng.choice(RAW)
    written = json.dumps(mutated(rng, known) if kind < 0.75 else value(rng)).encode()
    if kind > 0.92:  # broken somewhere
        place = rng.randrange(len(written) + 1)
        written = written[:place] + bytes([rng.randrange(256)]) + written[place + rng.randrange(3) :]
    return written
