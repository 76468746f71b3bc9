"""The app's settings: one `HELIX_SESSIONS` dict, typed here, read live."""

from typing import Any, get_type_hints

from django.conf import settings

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

    MAX_DOCUMENT_DEPTH: int = 500
    """The deepest nesting of a document that is stored."""

    PREPARED_STATEMENTS: bool = True
    """Prepare the hot statements on PostgreSQL. They are also left unprepared on connections with
    `DISABLE_SERVER_SIDE_CURSORS`, which a transaction-pooling proxy needs anyway."""

    PORTABLE_WRITES: bool = False
    """Flush a write table by table on PostgreSQL too, instead of in one statement."""

    STREAM_NOTIFY: bool = True
    """Wake the readers in other processes by NOTIFY on PostgreSQL. Without it they poll."""

    STREAM_POLL_SECONDS: float = 1.0
    """How long a live reader waits before it looks by itself, where no wake-ups of other processes arrive:
    on SQLite, behind a transaction-pooling proxy, and while the listening connection is down."""

    STREAM_SAFETY_POLL_SECONDS: float = 15.0
    """The same where wake-ups arrive."""

    STREAM_HEARTBEAT_SECONDS: float = 15.0
    """How long an HTTP stream is silent before it sends a comment to keep proxies from closing it."""

    STREAM_RECHECK_SECONDS: float = 30.0
    """How often an open HTTP stream checks that its user may still read the session."""

    STREAM_RETRY_SECONDS: float = 2.0
    """How long a browser waits before it connects again."""

    STREAM_WAIT_SECONDS: float = 25.0
    """The longest a long poll is held."""

    STREAMS_PER_USER: int = 20
    """How many HTTP streams one user may have open in one process."""

    API_DATABASE: str = "default"
    """The database alias whose sessions the HTTP API serves."""

    API_PAGE_SIZE: int = 50
    """How many rows a page of the HTTP API has when the request does not say."""

    API_MAX_PAGE_SIZE: int = 500
    """How many rows a page of the HTTP API may have; a larger `limit` is refused."""

    API_MAX_BODY_BYTES: int = 10 * 1024 * 1024
    """The largest request body the HTTP API reads; a larger one is answered 413."""

    API_THROTTLE_RATES: dict[str, str] = {}
    """Requests per user and scope, such as `{"create": "60/min", "write": "600/min", "read": "50/s"}`, in the
    notation of Django REST framework. A scope that is not named is not limited, but `answer`, which strangers
    reach by a link: it is `60/min` for each address."""

    IDEMPOTENCY_LIFETIME: int = 24 * 60 * 60
    """Seconds for which the answer to a request with an `Idempotency-Key` is kept."""

    IDEMPOTENCY_WAIT: float = 2.0
    """Seconds a request waits for another one with the same `Idempotency-Key` before it is answered 409
    (PostgreSQL)."""

    ANSWER_LINK_SECONDS: int = 7 * 24 * 60 * 60
    """Seconds for which a link to answer a tool call is good, at the most."""

    ARCHIVE_STORAGE: str = ""
    """The alias in `STORAGES` that long event logs are archived to. Archiving is refused while it is empty:
    conversations must not end up in a storage that serves files to the public."""

    ARCHIVE_PREFIX: str = "helix_sessions/archives"
    """The folder of that storage under which archives are written."""

    AUDIT_TRAIL: bool = False
    """Keep who did what through the HTTP API as rows: each change, in its own transaction, and each refusal.
    Without it, the logger `helix_sessions.audit` tells."""

    METRICS_TOKEN: str = ""
    """What a scraper of the metrics sends as its bearer token. While it is empty, metrics are for users who
    may see all sessions."""

    ENCRYPTION: dict[str, Any] = {}
    """Content at rest: `{"keys": {"2026": "32 bytes in base64"}, "active": "2026"}`. Every key opens, the
    active one seals; with `None` new content is stored as it is. `keys` may be the path of a function that
    returns them."""

    WORKSPACE_PROVIDERS: dict[str, Any] = {}
    """Workspace providers by the `provider_id` that sessions name in their `workspace_ref`: the dotted path
    of a class, or such a path and a dict of arguments for it."""

    INBOX_LIMIT: int = 1_000
    """How many inputs of a session may be pending; the next one is refused with `InboxFull`."""

    AGENTS: dict[str, Any] = {}
    """The agents by the type of session they run, each as the dotted path of an agent, of its class, or of a
    function that makes one. `"*"` is for all other types."""

    RECOVERY: dict[str, str] = {}
    """What a sweep does with a run whose lease ran out, by agent type, `"*"` for all others: `wake` finishes
    it, `fail` fails the session, `leave` leaves it. Types that are not named are woken."""

    WAKER: str = "helix_sessions.runtime.scheduling.wake_session"
    """The dotted path of the function that is told of admitted inputs after the commit. The default schedules
    a task, where `TASKS` is configured and `AGENTS` has the session's type. Empty: nobody is told, and
    workers find them by looking."""
    CONTEXT_SOURCES: list[Any] = []
    """The sources of the context of every session that is driven without sources of its own: dotted paths,
    or such paths with a dict of arguments."""

    COMPACTION: dict[str, Any] = {}
    """The policy of compactions that are asked for by hand, or made without one of their own: the arguments
    of `CompactionPolicy`."""

    SUMMARIZER: str = ""
    """The dotted path of the function that summarizes messages for such compactions. They are refused while
    it is empty."""

    COMPACTION_SECONDS: float = 600.0
    """How long a compaction may take before another of the same session may begin, if nobody can tell
    whether its process is still at it."""

    STUCK_MINUTES: int = 15
    """A session that is running and has not moved for so long is shown as stuck."""

    MASKED_KEYS: list[str] = _SECRETS
    """Keys of documents whose values the admin does not show, as patterns of `fnmatch`, in any case."""

    ADMIN_DOCUMENT_CHARACTERS: int = 20_000
    """So much of a document is shown in the admin; the rest can be downloaded."""

    ADMIN_ACTION_LIMIT: int = 1_000
    """So many sessions an action of the admin takes at once."""

    def __getattribute__(self, name: str) -> Any:
        # Past the lazy object, which takes microseconds to say that a setting is not there.
        given = getattr(settings._wrapped, "HELIX_SESSIONS", None)  # type: ignore[misc]
        return given[name] if given and name in given else super().__getattribute__(name)


conf = Conf()


def known_settings() -> dict[str, Any]:
    """Every setting's name and the type it takes."""
    return get_type_hints(Conf)
