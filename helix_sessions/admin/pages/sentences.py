"""One short sentence for each kind of event."""

from collections.abc import Callable
from typing import Any

from django.utils.translation import gettext as _

from helix_sessions.admin import humanize
from helix_sessions.admin.presentation import moment
from helix_sessions.messages import errors

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
    status, reason = _word(data, "status"), _word(data, "reason")
    text = _("Run ended: %s") % str(humanize.RUN_STATUS_LABELS.get(status, status))
    return f"{text} · {reason}" if reason else text


def who(by: Any) -> str:
    """Who answered a call, and by which way: over HTTP, in the admin, by a link, or no person at all."""
    if not isinstance(by, dict):
        return "" if by is None else _word({"by": by}, "by")
    kind, key = _word(by, "kind"), _word(by, "id")
    ways = {
        "user": _("user %s over HTTP"),
        "operator": _("operator %s in the admin"),
        "link": _("the holder of a link"),
        "rule": _("the tool rule %s"),
        "deadline": _("the deadline"),
        "code": _("code"),
    }
    said = ways.get(kind, kind)
    return said % key if "%s" in said else said


def _submitted(data: dict[str, Any]) -> str:
    parts = [_("Answer submitted: %s") % _word(data, "answer"), who(data.get("by"))]
    if data.get("edited") is True:
        parts.append(_("with other arguments"))
    return " · ".join(part for part in parts if part)


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


def _rule(data: dict[str, Any]) -> dict[str, str]:
    return {name: _word(data, name) for name in ("decision", "tool")}


def _rule_set(data: dict[str, Any]) -> str:
    parts = [_("Tool rule: %(decision)s %(tool)s") % _rule(data)]
    if data.get("scope") == "owner":
        parts.append(_("in every session of the owner"))
    return " · ".join(part for part in [*parts, who(data.get("by"))] if part)


def _told(data: dict[str, Any]) -> str:
    changed = _names(data, "changes")
    return _("The context of the model changed: %s") % changed if changed else _("Context updated")


def _turn_finished(data: dict[str, Any]) -> str:
    text = _("Turn %s finished") % _word(data, "turn")
    milliseconds = data.get("duration_ms")
    return f"{text} · {milliseconds / 1000:.1f} s" if isinstance(milliseconds, int | float) else text


def _model_called(data: dict[str, Any]) -> str:
    model, attempt = _word(data, "model"), data.get("attempt")
    text = _("Model called: %s") % model if model else _("Model called")
    return f"{text} · {_('attempt %s') % attempt}" if attempt not in (None, 1) else text


def _failed(name: str, data: dict[str, Any]) -> str:
    error = _word({"error": errors.in_words(data.get("error") or data)}, "error").strip()
    return f"{name}: {error}" if error else name


def _model_failed(data: dict[str, Any]) -> str:
    text = _failed(_("Model error"), data)
    return f"{text} · {_('retried')}" if data.get("retry_at") else text


def _spend_warning(data: dict[str, Any]) -> str:
    limit = " ".join(filter(None, (_word(data, name) for name in ("scope", "key", "window"))))
    return _("Spend limit almost reached: %s") % limit


def _feedback(data: dict[str, Any]) -> str:
    words = {"up": _("Thumb up for message %s"), "down": _("Thumb down for message %s")}
    return words.get(str(data.get("rating")), _("Feedback on message %s withdrawn")) % _word(data, "position")


_SENTENCES: dict[str, Callable[[dict[str, Any]], str]] = {
    "session_started": _started,
    "session_woken": lambda data: _("Recovered after a crash"),
    "session_ended": lambda data: _("Session ended"),
    "status_changed": _status,
    "run_started": lambda data: _("Run %s started") % _word(data, "turn"),
    "run_updated": lambda data: _("Run continued"),
    "run_finished": _finished,
    "turn_started": lambda data: _("Turn %s started") % _word(data, "turn"),
    "turn_finished": _turn_finished,
    "model_called": _model_called,
    "model_call_failed": _model_failed,
    "tool_retried": lambda data: _("Tool retried: %s") % _word(data, "tool_name"),
    "run_requested": lambda data: _("Retry requested") if data.get("retry") else _("Run requested"),
    "state_saved": lambda data: _("State saved at step %s") % _word(data, "step_count"),
    "state_merged": lambda data: _("State merged"),
    "counter_raised": lambda data: f"{_word(data, 'counter')} = {_word(data, 'value')}",
    "tool_rule_set": _rule_set,
    "tool_rule_deleted": lambda data: _("Tool rule revoked: %(decision)s %(tool)s") % _rule(data),
    "spend_warning": _spend_warning,
    "schedule_fired": lambda data: _("Fired by a schedule, for %s") % _word(data, "firing_at"),
    "session_updated": lambda data: _("Description changed: %s") % _names(data, "fields"),
    "metadata_patched": lambda data: _("Metadata changed: %s") % _names(data, "keys"),
    "messages_truncated": lambda data: _("%s messages truncated") % _word(data, "removed"),
    "checkpoint_created": lambda data: _("Checkpoint %s") % _word(data, "checkpoint_id"),
    "staging_promoted": _promoted,
    "interrupt_requested": lambda data: (
        _("Asked to stop: %s") % (_word(data, "reason") or _("no reason was given"))
    ),
    "interrupt_cleared": lambda data: _("The request to stop was taken"),
    "handoff": lambda data: _("Handed over to %s") % _word(data, "to"),
    "subgraph_started": lambda data: _("Sub-graph started: %s") % _word(data, "name"),
    "subgraph_finished": lambda data: _("Sub-graph ended: %s") % _word(data, "name"),
    "subagent_spawned": lambda data: _("Sub-session started: %s") % _word(data, "agent_type"),
    "subagent_updated": lambda data: _("Sub-session changed"),
    "subagent_result": lambda data: _("Sub-session ended"),
    "operator_action": _operator,
    "expiry_changed": _expiry,
    "llm_error": lambda data: _failed(_("Model error"), data),
    "tool_error": lambda data: _failed(_("Tool failed"), data),
    "error": lambda data: _failed(_("Error"), data),
    "compaction_started": lambda data: _("Older messages are being summarised"),
    "compacted": lambda data: _("Older messages were summarised"),
    "context_initialized": lambda data: _("The context of the model was set"),
    "context_updated": _told,
    "context_replaced": lambda data: _("The context of the model was set again"),
    "blob_attached": lambda data: _("Attached: %s") % data.get("media_type", ""),
    "feedback_given": _feedback,
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
    "tool_result_submitted": _submitted,
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
