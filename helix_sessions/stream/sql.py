"""The statements of the channel, and which databases it can be used with.

The store tells this package of commits, so nothing here may ask the store's dialect.
"""

from django.db.backends.base.base import BaseDatabaseWrapper

CHANNEL = "helix_sessions"

LISTEN = f"LISTEN {CHANNEL}"
UNLISTEN = f"UNLISTEN {CHANNEL}"

# A notification is not worth a flush of the write-ahead log.
NOTIFY = b"SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"
NOTIFY_ALL = (
    b"SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"
    b" WHERE set_config('synchronous_commit', 'off', true) IS NOT NULL"
)

TRY = "SELECT 1"
"""Whether the connection still works."""


def notifies(connection: BaseDatabaseWrapper) -> bool:
    """Whether processes can tell each other something through the database."""
    return connection.vendor == "postgresql"
