"""Who may do what with somebody else's session, over every address there is.

A row for each address. `test_foreign_ids` holds this table against the routes, so an address that nobody
thought about fails the build.
"""

OWN = "own"
"""About one session: its owner's, and of those who hold a permission for all sessions."""

LISTING = "listing"
"""Shows or touches the sessions or memories of whoever asks, and nobody else's."""

CREATES = "creates"
"""Makes a session of whoever asks; an id that is taken is refused, whoever has it."""

OPEN = "open"
"""The same for every user who is logged in; nothing of any session."""

OPERATED = "operated"
"""For who has the permission of the admin; nothing of a session's content."""

READ = ("get",)

BY_LINK = {"answer", "blob-content"}
"""For whoever holds a signed link that a user who may made; see `tests/api/test_answers.py` and
`tests/blobs/test_http.py`."""

ACCESS: dict[str, dict[str, str]] = {
    "root": {"get": OPEN},
    "sessions": {"get": LISTING, "post": CREATES},
    "session": {"get": OWN, "put": CREATES, "patch": OWN, "delete": OWN},
    "state": {"get": OWN, "put": OWN, "patch": OWN},
    "status": {"put": OWN, "post": OWN, "get": OWN},
    "counters": {"get": OWN},
    "step-counter": {"post": OWN},
    "resume-counter": {"post": OWN},
    "metadata": {"get": OWN, "patch": OWN},
    "clone": {"post": OWN},
    "commit": {"post": OWN},
    "messages": {"get": OWN, "post": OWN},
    "message-count": {"get": OWN},
    "truncate-messages": {"post": OWN},
    "runs": {"get": OWN, "post": OWN},
    "run": {"get": OWN, "patch": OWN},
    "current-run": {"get": OWN},
    "checkpoints": {"get": OWN, "post": OWN},
    "checkpoint": {"get": OWN},
    "latest-checkpoint": {"get": OWN},
    "staging": {"get": OWN},
    "promote-staging": {"post": OWN},
    "discard-staging": {"post": OWN},
    "cleanup-session-staging": {"post": OWN},
    "staged-change": {"put": OWN},
    "interrupt": {"get": OWN, "put": OWN, "delete": OWN},
    "take-interrupt": {"post": OWN},
    "sub-sessions": {"get": OWN, "post": OWN},
    "sub-session": {"patch": OWN},
    "events": {"get": OWN, "post": OWN},
    "event-projection": {"get": OWN},
    "fragments": {"post": OWN},
    "blobs": {"post": OWN},
    "blob": {"get": OWN},
    "feedback": {"post": OWN, "delete": OWN},
    "feedback-list": {"get": OWN},
    "wake": {"post": OWN},
    "attach": {"post": CREATES},
    "detach": {"post": OWN},
    "cleanup-staging": {"post": LISTING},
    "memories": {"get": LISTING, "post": LISTING, "delete": LISTING},
    "event-stream": {"get": OWN},
    "inputs": {"get": OWN, "post": OWN},
    "context": {"get": OWN},
    "compactions": {"get": OWN, "post": OWN},
    "input": {"patch": OWN, "delete": OWN},
    "idle": {"get": OWN},
    "run-session": {"post": OWN},
    "retry-run": {"post": OWN},
    "interrupt-run": {"post": OWN},
    "wake-runner": {"post": OWN},
    "lease": {"post": OWN, "put": OWN, "delete": OWN},
    "stream-tickets": {"post": OWN},
    "tool-rules": {"get": OPERATED, "post": OPERATED},
    "tool-rule": {"get": OPERATED, "delete": OPERATED},
    "spend": {"get": LISTING, "post": OPERATED},
    "spend-limits": {"get": OPERATED},
    "spend-limit": {"delete": OPERATED},
    "schedules": {"get": OPERATED, "post": OPERATED},
    "schedule": {"get": OPERATED, "patch": OPERATED, "delete": OPERATED},
    "run-schedule": {"post": OPERATED},
    "schedule-firings": {"get": OPERATED},
    "webhooks": {"get": OPERATED, "post": OPERATED},
    "webhook": {"get": OPERATED, "patch": OPERATED, "delete": OPERATED},
    "webhook-deliveries": {"get": OPERATED},
    "replay-delivery": {"post": OPERATED},
    "turns": {"post": CREATES},
    "suspend": {"post": OWN},
    "tool-results": {"post": OWN},
    "answer-links": {"post": OWN},
    "resume": {"post": OWN},
    "rewind": {"post": OWN},
    "child": {"post": OWN},
    "actions": {"post": OWN},
    "chat": {"get": OWN, "post": OWN},
    "ag-ui": {"get": OWN, "post": OWN},
    "chat-stop": {"post": OWN},
    "chat-stream": {"get": OWN},
}

PARTICIPANT: dict[str, tuple[str, ...]] = {
    "root": ("get",),
    "sessions": ("get", "post"),
    "session": ("get", "put", "delete"),
    "state": ("get",),
    "status": ("get",),
    "counters": ("get",),
    "metadata": ("get",),
    "clone": ("post",),
    "messages": ("get",),
    "message-count": ("get",),
    "context": ("get",),
    "events": ("get",),
    "event-projection": ("get",),
    "event-stream": ("get",),
    "stream-tickets": ("post",),
    "interrupt": ("get", "put"),
    "inputs": ("get", "post"),
    "input": ("patch", "delete"),
    "idle": ("get",),
    "run-session": ("post",),
    "interrupt-run": ("post",),
    "wake-runner": ("post",),
    "retry-run": ("post",),
    "tool-results": ("post",),
    "blobs": ("post",),
    "blob": ("get",),
    "feedback": ("post", "delete"),
    "feedback-list": ("get",),
    "chat": ("get", "post"),
    "ag-ui": ("get", "post"),
    "chat-stop": ("post",),
    "chat-stream": ("get",),
    "memories": ("get", "post", "delete"),
    "spend": ("get",),
}
"""What the owner of a session may do with it and with their memories; all else takes `drive_session`."""
