"""The clock that leases go by."""

from typing import Any

from django.db import models
from django.db.models.functions import Now
from django.utils import timezone


class LeaseClock(Now):
    """The database's time. SQLite's own leaves the microseconds out, so that a lease which has just ended
    would last to the next millisecond: there it is the machine's, which all owners share."""

    def as_sqlite(self, compiler: Any, connection: Any, **extra_context: Any) -> Any:
        return compiler.compile(models.Value(timezone.now(), output_field=models.DateTimeField()))
