"""Every method of every address, with a body that the address takes."""

from hashlib import sha256
from typing import Any

from helix_sessions.api import examples, operator_examples

COMMIT = {"state": {"custom_state": {}}, "append_messages": [{"role": "user", "content": "hello"}]}

BODIES: dict[tuple[str, str], Any] = {
    ("post", "sessions"): {"agent_type": "test"},
    ("put", "session"): {"agent_type": "test"},
    ("patch", "session"): {"title": "A lost parcel"},
    ("put", "state"): {"custom_state": {}},
    ("patch", "state"): {"writes": [{"op": "set", "path": ["a"], "value": 1}]},
    ("post", "status"): {"expected_statuses": ["active"], "new_status": "paused"},
    ("put", "status"): {"status": "paused"},
    ("patch", "metadata"): {"tier": "gold"},
    ("post", "clone"): {"new_id": "branch"},
    ("post", "commit"): COMMIT,
    ("post", "messages"): {"messages": [{"role": "user", "content": "hello"}]},
    ("post", "compactions"): {"reason": "tidy"},
    ("post", "truncate-messages"): {"count": 0},
    ("post", "runs"): {"run_id": "r"},
    ("patch", "run"): {"status": "completed"},
    ("post", "checkpoints"): {},
    ("put", "staged-change"): {"writes": examples.WRITES},
    ("post", "promote-staging"): {"step_id": "step"},
    ("post", "discard-staging"): {},
    ("post", "cleanup-session-staging"): {"older_than_seconds": 0},
    ("post", "cleanup-staging"): {"older_than_seconds": 0},
    ("post", "memories"): {"key": "k", "value": {}},
    ("post", "inputs"): {"prompt": "hello"},
    ("patch", "input"): {"delivery": "queue"},
    ("post", "tool-rules"): {"tool": "refund", "decision": "ask"},
    ("post", "spend"): {"scope": "all", "window": "day", "usd": 5},
    ("post", "schedules"): operator_examples.NEW_SCHEDULE,
    ("patch", "schedule"): {"enabled": False},
    ("post", "webhooks"): {"url": "https://hooks.example.com/agents"},
    ("patch", "webhook"): {"enabled": False},
    ("post", "feedback"): {"rating": "up"},
    ("post", "lease"): {"owner": "worker-1", "ttl": 30},
    ("put", "lease"): {"owner": "worker-1", "ttl": 30},
    ("post", "turns"): {"message": "hello"},
    ("post", "suspend"): {"kind": "client_tool", "state": {}, "run_id": "r"},
    ("post", "tool-results"): {"tool_call_id": "call", "result": 1},
    ("post", "answer-links"): {"tool_call_id": "call"},
    ("post", "resume"): {},
    ("post", "rewind"): {},
    ("post", "child"): {"status": "completed"},
    ("put", "interrupt"): {"reason": "stop"},
    ("post", "sub-sessions"): {"refs": [{"sub_session_id": "sub", "agent_type": "test"}]},
    ("patch", "sub-session"): {"status": "completed"},
    ("post", "events"): {"type": "note"},
    ("post", "fragments"): {"data": {"text": "hel"}},
    ("post", "actions"): {"action": "SuspendSession"},
    ("post", "chat"): examples.CHAT,
    ("post", "ag-ui"): examples.AG_UI,
}


QUERIES = {("delete", "memories"): "?key=k"}
"""What an address needs besides."""


def every_method() -> list[tuple[str, str]]:
    """(method, name) of the whole API."""
    from helix_sessions.api.urls import ROUTES
    from helix_sessions.api.views.sessions import RootView

    methods = ("get", "post", "put", "patch", "delete")
    views: list[tuple[str, Any]] = [("root", RootView), *((name, view) for _, view, name in ROUTES)]
    return [
        (method, name)
        for name, view in views
        for method in methods
        if hasattr(view, method) and method in view.http_method_names
    ]


WITHOUT_A_SESSION = (
    *("root", "sessions", "cleanup-staging", "tool-rules", "tool-rule", "memories"),
    *("webhooks", "webhook", "webhook-deliveries", "replay-delivery"),
    *("spend", "spend-limits", "spend-limit"),
    *("schedules", "schedule", "run-schedule", "schedule-firings"),
)

FRONT_ENDS = ("chat", "chat-stream", "ag-ui")
"""Those that speak the protocol of a page: a stream, without a version; a message is sent once by its id."""

_IDS: dict[str, list[Any]] = {
    "tool-rule": ["rule"],
    "spend-limit": ["limit"],
    "schedule": ["daily"],
    "run-schedule": ["daily"],
    "schedule-firings": ["daily"],
    "webhook": ["hook"],
    "webhook-deliveries": ["hook"],
    "replay-delivery": ["hook", "msg_1"],
    "run": ["r"],
    "blob": [sha256(b"content").hexdigest()],
    "input": ["i"],
    "feedback": [1],
    "checkpoint": ["c"],
    "sub-session": ["sub"],
    "child": ["sub"],
    "staged-change": ["step", "call"],
    "chat-stream": ["chat"],
}


def address(name: str, session_id: str) -> str:
    """The path of a name."""
    from django.urls import reverse

    if name in WITHOUT_A_SESSION:
        return reverse(f"helix_sessions:{name}", args=_IDS.get(name))
    return reverse(f"helix_sessions:{name}", args=[session_id, *_IDS.get(name, [])])


def of_a_session() -> list[tuple[str, str]]:
    """Those that name a session."""
    return [pair for pair in every_method() if pair[1] not in WITHOUT_A_SESSION]
