"""What happened, in a few words an operator reads at a glance."""

from collections.abc import Callable
from typing import Any

from django.utils.translation import gettext as _

from helix_sessions.admin import words
from helix_sessions.admin.sight import moment

LONGEST = 240


def sentence(kind: str, data: dict[str, Any]) -> str:
    """An event in words; of an unknown kind, its name."""
    say = _SENTENCES.get(kind)
    return say(data) if say is not None else kind.replace("_", " ")


def _word(data: dict[str, Any], key: str) -> str:
    value = data.get(key)
    text = "" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _started(data: dict[str, Any]) -> str:
    source = data.get("forked_from")
    if isinstance(source, list) and source:
        return _("Session branched from %s") % str(source[0])[:LONGEST]
    return _("Session started")


def _status(data: dict[str, Any]) -> str:
    before, after = (
        str(words.STATUS_LABELS.get(_word(data, key), _word(data, key))) for key in ("from", "to")
    )
    reason = _word(data, "failure_reason")
    text = _("Status: %(before)s → %(after)s") % {"before": before, "after": after}
    return f"{text} · {reason}" if reason else text


def _finished(data: dict[str, Any]) -> str:
    status = _word(data, "status")
    return _("Run ended: %s") % str(words.RUN_STATUS_LABELS.get(status, status))


def _operator(data: dict[str, Any]) -> str:
    by = data.get("by")
    name = by.get("username") if isinstance(by, dict) else by
    return _("%(who)s: %(action)s · %(reason)s") % {
        "who": str(name or _("An operator"))[:LONGEST],
        "action": _word(data, "action").replace("_", " "),
        "reason": _word(data, "reason"),
    }


def _expiry(data: dict[str, Any]) -> str:
    at = moment(data.get("to"))
    return _("Never expires") if at is None else _("Expires at %s") % at.strftime("%Y-%m-%d %H:%M:%S %Z")


def _promoted(data: dict[str, Any]) -> str:
    changes = data.get("changes")
    count = len(changes) if isinstance(changes, list) else 0
    return _("Staged writes applied (%s)") % words.count_of_calls(count)


def _patched(data: dict[str, Any]) -> str:
    keys = data.get("keys")
    return _("Metadata changed: %s") % ", ".join(map(str, keys if isinstance(keys, list) else []))[:LONGEST]


_SENTENCES: dict[str, Callable[[dict[str, Any]], str]] = {
    "session_started": _started,
    "session_woken": lambda data: _("Picked up after a crash"),
    "session_ended": lambda data: _("Session ended"),
    "status_changed": _status,
    "run_started": lambda data: _("Run %s started") % _word(data, "turn"),
    "run_updated": lambda data: _("Run went on"),
    "run_finished": _finished,
    "state_saved": lambda data: _("State saved at step %s") % _word(data, "step_count"),
    "state_merged": lambda data: _("State merged"),
    "counter_raised": lambda data: f"{_word(data, 'counter')} = {_word(data, 'value')}",
    "metadata_patched": _patched,
    "messages_truncated": lambda data: _("%s messages truncated") % _word(data, "removed"),
    "checkpoint_created": lambda data: _("Checkpoint %s") % _word(data, "checkpoint_id"),
    "staging_promoted": _promoted,
    "interrupt_requested": lambda data: (
        _("Asked to stop: %s") % (_word(data, "reason") or _("no reason was given"))
    ),
    "interrupt_cleared": lambda data: _("The request to stop was taken"),
    "subagent_spawned": lambda data: _("Sub-session started: %s") % _word(data, "agent_type"),
    "subagent_updated": lambda data: _("Sub-session changed"),
    "subagent_result": lambda data: _("Sub-session is done"),
    "operator_action": _operator,
    "expiry_changed": _expiry,
    "llm_error": lambda data: _("Model error: %s") % (_word(data, "error") or _word(data, "message")),
    "tool_error": lambda data: _("Tool failed: %s") % _word(data, "error"),
    "error": lambda data: _("Error: %s") % (_word(data, "error") or _word(data, "message")),
    "compacted": lambda data: _("Older messages were summarised"),
}
