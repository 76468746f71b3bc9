"""Who may do what with somebody else's session, over every address there is.

A row for each address. `test_foreign_ids` holds this table against the routes, so an address that nobody
thought about fails the build.
"""

OWN = "own"
"""About one session: its owner's, and of those who hold a permission for all sessions."""

LISTING = "listing"
"""Shows or touches the sessions of whoever asks, and nobody else's."""

CREATES = "creates"
"""Makes a session of whoever asks; an id that is taken is refused, whoever has it."""

OPEN = "open"
"""The same for every user who is logged in; nothing of any session."""

READ = ("get",)

BY_LINK = {"answer"}
"""For whoever holds a signed link that a user who may made; see `tests/api/test_answers.py`."""

ACCESS: dict[str, dict[str, str]] = {
    "root": {"get": OPEN},
    "sessions": {"get": LISTING, "post": CREATES},
    "session": {"get": OWN, "put": CREATES, "delete": OWN},
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
    "wake": {"post": OWN},
    "attach": {"post": CREATES},
    "detach": {"post": OWN},
    "cleanup-staging": {"post": LISTING},
    "event-stream": {"get": OWN},
    "inputs": {"get": OWN, "post": OWN},
    "context": {"get": OWN},
    "compactions": {"get": OWN, "post": OWN},
    "input": {"patch": OWN, "delete": OWN},
    "idle": {"get": OWN},
    "run-session": {"post": OWN},
    "interrupt-run": {"post": OWN},
    "wake-runner": {"post": OWN},
    "turns": {"post": CREATES},
    "suspend": {"post": OWN},
    "tool-results": {"post": OWN},
    "answer-links": {"post": OWN},
    "resume": {"post": OWN},
    "rewind": {"post": OWN},
    "child": {"post": OWN},
    "actions": {"post": OWN},
}
