"""Who may do what over HTTP: participants, drivers, operators.

Every operation of the API is a verb, named by its operation id in the schema. The owner of a session is a
participant: a person who talks to the agent. Who has `drive_session` is a driver: a backend that runs one.
`HELIX_SESSIONS["API_POLICY"]` names another class with the same method.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

from django.utils.module_loading import import_string
from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from helix_sessions.api.permissions import holds_any
from helix_sessions.api.scoping import DRIVE, may_manage_all, may_view_all
from helix_sessions.conf import conf
from helix_sessions.runtime.agents import agent_for

PARTICIPANT_VERBS = frozenset(
    {
        # what they see
        *("get_root", "list_sessions", "get_session", "load_state", "get_status", "get_counters"),
        *("get_metadata", "get_messages", "get_message_count", "get_context", "get_events"),
        *("project_messages", "follow_events", "create_stream_ticket", "wait_for_idle"),
        *("peek_interrupt_flag",),
        # what they do
        *("create_session", "ensure_session", "clone_session", "delete_session"),
        *("admit_input", "list_inputs", "set_delivery", "cancel_input"),
        *("submit_tool_result", "set_interrupt_flag", "stop"),
        *("run", "wake_runner", "retry_run"),
        *("attach_blob", "get_blob"),
        *("give_feedback", "withdraw_feedback", "list_feedback"),
        # the same from a chat
        *("get_chat", "follow_chat", "send_chat_message", "regenerate_answer", "stop_chat"),
        *("run_ag_ui", "follow_ag_ui"),
        # their own memories, and what they have spent
        *("search_memories", "put_memory", "delete_memory", "spend_status"),
    }
)
"""What the owner of a session may do with it, and with memories of their own. `submit_tool_result` is limited
further, by the store: `as_participant`."""

CREATING_VERBS = frozenset({"create_session", "ensure_session", "begin_turn", "attach"})
"""What may name a session that does not exist."""

OPERATOR_VERBS = {
    **dict.fromkeys(
        ("list_tool_rules", "get_tool_rule", "set_tool_rule", "delete_tool_rule"),
        "helix_sessions.change_toolrule",
    ),
    **dict.fromkeys(
        (
            *("list_webhooks", "get_webhook", "create_webhook", "update_webhook", "delete_webhook"),
            *("list_webhook_deliveries", "replay_webhook_delivery"),
        ),
        "helix_sessions.change_webhook",
    ),
    **dict.fromkeys(
        ("list_spend_limits", "set_spend_limit", "delete_spend_limit"), "helix_sessions.change_spendlimit"
    ),
    **dict.fromkeys(
        (
            *("list_schedules", "get_schedule", "create_schedule", "update_schedule", "delete_schedule"),
            *("run_schedule", "list_schedule_firings"),
        ),
        "helix_sessions.change_schedule",
    ),
}
"""What is about no single session, and the permission of the admin that it takes."""

PARTICIPANT_FIELDS = frozenset({"session_id", "agent_type", "tags", "metadata", "owner", "priority"})
"""What a participant may say of a session that is created. `owner` is checked on its own."""


class Policy(Protocol):
    """What `API_POLICY` names."""

    def may(self, request: Request, verb: str, session: Any) -> bool:
        """Whether the user of this request may do it. `session` is the `SessionHead` of the session that
        the address names, read from the database when it is first looked at; `None` where there is none."""


class ParticipantPolicy:
    """The default: participants, drivers, and those who may see or manage all sessions."""

    def may(self, request: Request, verb: str, session: Any) -> bool:
        """By the verb, and by the permissions of the user where the verb is none of a participant's."""
        if verb in OPERATOR_VERBS:
            return holds_any(request.user, OPERATOR_VERBS[verb])
        if verb in PARTICIPANT_VERBS or is_driver(request.user):
            return True
        return request.method in SAFE_METHODS and may_view_all(request.user)


def policy() -> Policy:
    """The policy of the settings."""
    return _made(conf.API_POLICY)


def refusal(verb: str) -> str:
    """Why a user may not do it, as far as it is known: another policy keeps its reasons."""
    if type(policy()) is not ParticipantPolicy:
        return f"This user may not {verb}."
    return f"This user may not {verb}: it takes the permission {OPERATOR_VERBS.get(verb, DRIVE)}."


def is_driver(user: Any) -> bool:
    """Whether the user runs agents, and may do with a session what a backend may."""
    return holds_any(user, DRIVE) or may_manage_all(user)


def sees_all(user: Any) -> bool:
    """Whether the user sees the private parts of a state too."""
    return is_driver(user) or may_view_all(user)


def sees_all_spending(user: Any) -> bool:
    """Whether the user sees what others have spent, too."""
    return holds_any(user, "helix_sessions.view_spendlimit", "helix_sessions.change_spendlimit")


def check_new_session(user: Any, agent_type: str | None, given: dict[str, Any]) -> None:
    """Refuse a session that this user may not create."""
    check_priority(user, given.get("priority"))
    if _may_be_created(agent_type) and PARTICIPANT_FIELDS.issuperset(given):
        return
    if is_driver(user):
        return
    beyond = sorted(set(given) - PARTICIPANT_FIELDS)
    if beyond:
        raise PermissionDenied(f"Only a driver sets {', '.join(beyond)} of a session.")
    raise PermissionDenied(f"Sessions of the agent type {agent_type!r:.100} are created by drivers.")


def check_priority(user: Any, priority: int | None) -> None:
    """Refuse a participant who would go before the others."""
    if priority is not None and priority > 0 and not is_driver(user):
        raise PermissionDenied("Only a driver gives a priority above 0.")


def leaves_to_participants(agent_type: str, tool_name: str) -> bool:
    """Whether the agent of the settings says `approval="participant"` of a tool. The loop says so in the
    entry of a call that waits; a driver that suspends by itself may not."""
    declared = (getattr(agent_for(agent_type), "tool_options", None) or {}).get(tool_name)
    if isinstance(declared, Mapping):
        return declared.get("approval") == "participant"
    return getattr(declared, "approval", None) == "participant"


def _may_be_created(agent_type: str | None) -> bool:
    allowed = conf.PARTICIPANT_AGENT_TYPES
    if allowed is None:
        allowed = list(conf.AGENTS)
    return "*" in allowed or (not isinstance(allowed, str) and agent_type in allowed)


@lru_cache(maxsize=8)
def _made(path: str) -> Policy:
    made: Policy = import_string(path)()
    return made
