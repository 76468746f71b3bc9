"""The ways a write is flushed: each must pass the same tests."""

from django.conf import settings as django_settings
from django.db import connection

ON_POSTGRESQL = "postgresql" in django_settings.DATABASES["default"]["ENGINE"]
WAYS = ["remembered row", *(["one statement"] if ON_POSTGRESQL else []), "table by table"]


def begin(flush_way: str) -> None:
    """Call before the write: a new connection remembers no row it wrote."""
    if flush_way == "one statement":
        connection.close()
