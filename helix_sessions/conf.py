"""The app's settings: one `HELIX_SESSIONS` dict, typed here, read live."""

from typing import Any, Literal, get_type_hints

from django.conf import settings
from django.utils.functional import empty

_SECRETS = [
    *("*password*", "*passwd*", "*secret*", "*token", "*api_key*", "*apikey*"),
    *("*private_key*", "*credential*", "authorization", "cookie", "set-cookie"),
]


class Conf:
    """Each annotated name is a key of `HELIX_SESSIONS`; its value here is the default."""

    LOCK_TIMEOUT: float = 10.0
    """Seconds a write waits for a session's row lock before `SessionBusy` (PostgreSQL).
    On SQLite the wait is the connection's `timeout` option."""

    MAX_DOCUMENT_BYTES: int = 32 * 1024 * 1024
    """The largest document (a message, a state, an event's data) that is stored."""

    PREPARED_STATEMENTS: bool = True
    """Prepare the hot statements on PostgreSQL. They are also left unprepared on connections with
    `DISABLE_SERVER_SIDE_CURSORS`, which a transaction-pooling proxy needs anyway."""

    STREAM_NOTIFY: bool = True
    """Notify the readers in other processes by `NOTIFY` on PostgreSQL. Without it they poll."""

    STREAM_POLL_SECONDS: float = 1.0
    """The poll interval of a live reader where no notifications of other processes arrive: on SQLite, behind
    a transaction-pooling proxy, and while the listening connection is down."""

    STREAM_LONG_POLLS: int = 2
    """How many long polls may wait in one process of a WSGI server, each on a thread. The others are answered
    at once, and come again after three seconds."""

    STREAMS_PER_USER: int = 20
    """How many HTTP streams one user may have open in one process."""

    API_DATABASE: str | None = None
    """The database alias whose sessions the HTTP API serves. `None`: the one that the project's routers write
    sessions to."""

    API_MAX_BODY_BYTES: int = 10 * 1024 * 1024
    """The largest request body the HTTP API reads; a larger one gets 413."""

    API_THROTTLE_RATES: dict[str, str] = {}
    """Requests per user and scope, such as `{"create": "60/min", "write": "600/min", "read": "50/s"}`, in the
    notation of Django REST framework. A scope without a rate is not limited, except `answer`, which people
    without an account reach by a link: it is `60/min` for each address."""

    API_POLICY: str = "helix_sessions.api.policy.ParticipantPolicy"
    """The dotted path of the class that says who may do what over HTTP: `may(request, verb, session)`."""

    PARTICIPANT_AGENT_TYPES: list[str] | Literal["*"] | None = None
    """The agent types whose sessions a participant may create over HTTP; `"*"` is any. `None`: those that
    `AGENTS` names."""

    PRIVATE_STATE_KEYS: list[str] = []
    """Top-level keys of `custom_state` that participants do not see: in states, in events, in streams."""

    ANSWER_LINK_SECONDS: int = 7 * 24 * 60 * 60
    """The longest lifetime of a link to answer a tool call, in seconds."""

    ARCHIVE_STORAGE: str = ""
    """The alias in `STORAGES` that long event logs are archived to. Archiving is refused while it is empty:
    conversations must not end up in a storage that serves files to the public."""

    BLOB_STORAGE: str = ""
    """The alias in `STORAGES` that attachments are kept in. While it is empty, binary content stays inline in
    its document, and calls for attachments are refused. It must keep the names that files are saved under."""

    BLOB_THRESHOLD: int = 64 * 1024
    """Base64 in a document that decodes to more bytes than this is kept as an attachment."""

    BLOB_GRACE: float = 24 * 60 * 60.0
    """Seconds after which an attachment that no session has is removed by `cleanup_debris`."""

    BLOB_MAX_BYTES: int = 25 * 1024 * 1024
    """The largest attachment that `put_blob` and the HTTP API take."""

    BLOB_MEDIA_TYPES: list[str] = []
    """The media types that they take, such as `image/png` and `image/*`; an empty list is any."""

    AUDIT_TRAIL: bool = False
    """Write the audit trail of the HTTP API as rows: each change, in its own transaction, and each refusal.
    Without it, only the logger `helix_sessions.audit` has them."""

    TRACE_CONTENT: bool = False
    """Let the spans of the loop carry what was said, called and returned. Without it they carry names,
    numbers and codes."""

    METRICS_TOKEN: str = ""
    """The bearer token of the metrics scraper. While it is empty, metrics are for users who may see all
    sessions."""

    ENCRYPTION: dict[str, Any] = {}
    """Encryption at rest: `{"keys": {"2026": "32 bytes in base64"}, "active": "2026"}`. Every key decrypts,
    the active one encrypts; with `None` new content is stored as plain text. `keys` may be the path of a
    function that returns them."""

    WORKSPACE_PROVIDERS: dict[str, Any] = {}
    """Workspace providers by the `provider_id` that sessions name in their `workspace_ref`: the dotted path
    of a class, or such a path and a dict of arguments for it."""

    INBOX_LIMIT: int = 1_000
    """How many inputs of a session may be pending; the next one is refused with `InboxFull`."""

    AGENTS: dict[str, Any] = {}
    """The agents by the type of session they run: the dotted path of an agent, of its class, or of a function
    that returns one. `"*"` is for all other types."""

    RECOVERY: dict[str, str] = {}
    """What a sweep does with a run whose lease has expired, by agent type, `"*"` for all others: `wake`
    finishes it, `fail` fails the session, `leave` leaves it to an operator. The default is `wake`."""

    RUN_OWNER_TIMEOUT: float = 60.0
    """Seconds after the agent's last sign when a run without a lease is taken for abandoned."""

    CONCURRENCY: dict[str, int] = {}
    """How many sessions run at once, over all workers: `{"owner": 4, "agent_type:research": 10}` bounds each
    owner, and the agent type that is named."""

    MAX_INTERRUPTED_ATTEMPTS: int = 5
    """How often a run is taken up again without one committed turn; then it fails as a crash loop."""

    WAKER: str = "helix_sessions.runtime.scheduling.wake_session"
    """The dotted path of the function that is called after the commit that admitted an input or made a
    session runnable. The default schedules a task, where `TASKS` is configured and `AGENTS` has the session's
    type. If empty, no function is called, and workers find inputs by polling."""

    MAX_TOOL_OUTPUT: int = 100 * 1024
    """How many bytes of a tool's result the model sees: its beginning and its end."""

    CONTEXT_SOURCES: list[Any] = []
    """The context sources of sessions whose runner has no sources of its own: dotted paths, or a path and a
    dict of arguments."""

    COMPACTION: dict[str, Any] = {}
    """The arguments of the `CompactionPolicy` for manual compactions and for runners that the settings
    configure."""

    SUMMARIZER: str = ""
    """The dotted path of the function that summarizes messages for these compactions. Manual compactions are
    refused while it is empty."""

    EMBEDDER: str = ""
    """The dotted path of the function that turns a list of texts into vectors, for memories whose store has
    none of its own. While it is empty, memories are searched by their words."""

    MAX_TOOL_CALLS_PER_TURN: int = 64
    """How many tool calls of one assistant message are executed; the others get error results."""

    MAX_STEERS_PER_TURN: int = 32
    """How many steers are promoted before one turn; the others wait for the next."""

    MAX_SUBAGENT_DEPTH: int = 5
    """How deep sub-agents may spawn others."""

    MAX_CHILDREN_PER_TURN: int = 16
    """How many sub-agents one turn may spawn; calls beyond it get error results."""

    WEBHOOK_ALLOW_PRIVATE: bool = False
    """Let webhooks be sent to addresses of private networks and of this machine, and by plain `http`."""

    TRANSCRIPT_SEARCH: bool = False
    """Keep the words of messages, so that the admin finds sessions by what was said. Each message is written
    with a row of its words; encrypted content has none. `index_transcripts` adds what is missing, and removes
    the words after it is turned off."""

    STUCK_MINUTES: int = 15
    """The admin shows a running session that has not changed for this long as stuck."""

    TRACE_URL: str = ""
    """The address of a session's trace where traces are collected, for the admin to link to, with
    `{trace_id}`, `{session_id}`, `{agent_type}` and `{run_id}` in it. Without it there is no link."""

    MASKED_KEYS: list[str] = _SECRETS
    """Keys of documents whose values the admin does not show, as patterns of `fnmatch`, in any case."""

    def __getattribute__(self, name: str) -> Any:
        given = getattr(_lazy["_wrapped"], "HELIX_SESSIONS", None)
        if given is None and _lazy["_wrapped"] is empty:
            given = getattr(settings, "HELIX_SESSIONS", None)
        return given[name] if given and name in given else super().__getattribute__(name)


_lazy: dict[str, Any] = object.__getattribute__(settings, "__dict__")
"""The lazy object's own attributes: to ask it for one takes longer than the rest of a reading."""

conf = Conf()

RATE_SCOPES = ("read", "write", "create", "answer")
"""The keys of `API_THROTTLE_RATES`."""

FORMER = frozenset(
    {
        "ADMIN_ACTION_LIMIT",
        "ADMIN_DOCUMENT_CHARACTERS",
        "API_MAX_PAGE_SIZE",
        "API_PAGE_SIZE",
        "ARCHIVE_PREFIX",
        "COMPACTION_SECONDS",
        "IDEMPOTENCY_LIFETIME",
        "IDEMPOTENCY_WAIT",
        "MAX_DOCUMENT_DEPTH",
        "PORTABLE_WRITES",
        "STREAM_HEARTBEAT_SECONDS",
        "STREAM_RECHECK_SECONDS",
        "STREAM_RETRY_SECONDS",
        "STREAM_SAFETY_POLL_SECONDS",
        "STREAM_WAIT_SECONDS",
    }
)
"""Keys of earlier releases that are constants now. A project that still has one gets a warning."""


def known_settings() -> dict[str, Any]:
    """The name and the type of every setting."""
    return get_type_hints(Conf)
