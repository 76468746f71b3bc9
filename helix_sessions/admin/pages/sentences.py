"""What happened, in a few words an operator reads at a glance."""

from collections.abc import Callable
from typing import Any

from django.utils.translation import gettext as _

from helix_sessions.admin import humanize
from helix_sessions.admin.presentation import moment

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
        str(humanize.STATUS_LABELS.get(_word(data, key), _word(data, key))) for key in ("from", "to")
    )
    reason = _word(data, "failure_reason")
    text = _("Status: %(before)s → %(after)s") % {"before": before, "after": after}
    return f"{text} · {reason}" if reason else text


def _finished(data: dict[str, Any]) -> str:
    status = _word(data, "status")
    return _("Run ended: %s") % str(humanize.RUN_STATUS_LABELS.get(status, status))


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
    return _("Staged writes applied (%s)") % humanize.count_of_calls(count)


def _names(data: dict[str, Any], key: str) -> str:
    names = data.get(key)
    return ", ".join(map(str, names if isinstance(names, list | dict) else []))[:LONGEST]


def _told(data: dict[str, Any]) -> str:
    changed = _names(data, "changes")
    return _("The model was told what changed: %s") % changed if changed else _("Context updated")


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
    "metadata_patched": lambda data: _("Metadata changed: %s") % _names(data, "keys"),
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
    "compaction_started": lambda data: _("Older messages are being summarised"),
    "compacted": lambda data: _("Older messages were summarised"),
    "context_initialized": lambda data: _("The model was told its context"),
    "context_updated": _told,
    "context_replaced": lambda data: _("The model was told its context anew"),
    "notes_put": lambda data: _("Notes kept: %s") % _names(data, "keys"),
    "notes_removed": lambda data: _("%s notes removed") % _word(data, "count"),
    "input_admitted": lambda data: _("Input admitted: %s") % _word(data, "delivery"),
    "input_cancelled": lambda data: _("Input cancelled: %s") % _word(data, "input_id"),
    "input_delivery_changed": lambda data: (
        _("Input changed from %(before)s to %(after)s")
        % {"before": _word(data, "from"), "after": _word(data, "to")}
    ),
    "tool_calls_waiting": lambda data: _("Waiting for answers: %s") % _names(data, "tool_call_ids"),
    "tool_calls_completed": lambda data: _("Answers were taken: %s") % _names(data, "tool_call_ids"),
    "tool_result_submitted": lambda data: _("Answer submitted: %s") % _word(data, "answer"),
    "tool_result_expired": lambda data: _("A deadline passed without an answer"),
    "tool_result_late": lambda data: _("An answer came too late"),
    "session_resumed": lambda data: _("Session resumed"),
    "session_rewound": lambda data: _("Session rewound to checkpoint %s") % _word(data, "checkpoint_id"),
    "session_moved": lambda data: _("Session moved"),
    "action_applied": lambda data: _("Action applied: %s") % _word(data, "action"),
    "model_changed": lambda data: _("Model changed to %s") % _word(data, "model"),
    "budget_updated": lambda data: _("Budget changed"),
    "system_prompt_changed": lambda data: _("System prompt changed"),
    "execution_changed": lambda data: _("Execution changed"),
}
