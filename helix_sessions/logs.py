"""Structured logs: one JSON object per line, with the ids of sessions and runs, without what people wrote.

LOGGING = {
    "version": 1,
    "formatters": {"json": {"()": "helix_sessions.logs.JsonFormatter"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "json"}},
    "loggers": {"helix_sessions": {"handlers": ["console"], "level": "INFO"}},
}
"""

import json
import logging
from datetime import UTC, datetime

FIELDS = (
    *("session_id", "run_id", "version", "head_seq", "events"),
    *("actor", "action", "method", "status", "code", "seconds", "request_id", "address"),
)
"""The attributes of this package's records that are written besides the message."""


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON. Of a traceback only the error's type is written, because the rest quotes
    values."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({name: vars(record)[name] for name in FIELDS if vars(record).get(name) is not None})
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return json.dumps(line, ensure_ascii=True, default=str)
