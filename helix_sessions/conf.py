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
