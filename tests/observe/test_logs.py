"""Logs for machines: ids, no content."""

import json
import logging

from helix_sessions.logs import JsonFormatter


def line(**extra: object) -> dict[str, object]:
    record = logging.makeLogRecord({"name": "helix_sessions.x", "msg": "did %s", "args": ("it",), **extra})
    found: dict[str, object] = json.loads(JsonFormatter().format(record))
    return found


def test_a_record_is_one_line_of_json():
    found = line(session_id="s\n", run_id="r", content="swordfish", body="swordfish")
    assert (found["message"], found["session_id"], found["run_id"]) == ("did it", "s\n", "r")
    assert "swordfish" not in repr(found)
    assert "\n" not in JsonFormatter().format(logging.makeLogRecord({"msg": "a\nb"}))


def test_a_traceback_quotes_values_and_is_left_out():
    try:
        raise ValueError("swordfish")
    except ValueError as error:
        found = line(exc_info=(type(error), error, error.__traceback__))
    assert found["error"] == "ValueError"
    assert "swordfish" not in repr(found)
