"""Rules for tools: allow, ask or deny, by session, owner, agent type, arguments and name."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Q
from django.utils import timezone

from helix_sessions import models
from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput, ToolRuleNotFound
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import transaction_on
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.types import (
    JSON,
    TOOL_DECISIONS,
    UNSET,
    ToolDecision,
    ToolRule,
    Unset,
)

_STRICTEST_FIRST = ("deny", "ask", "allow")


def set_tool_rule(
    store: Store,
    tool: str,
    decision: ToolDecision,
    *,
    agent_type: str | None = None,
    session_id: str | None = None,
    owner: Any = None,
    arguments: Mapping[str, JSON] | None = None,
) -> ToolRule:
    """Say what becomes of calls of a tool: `allow`, `ask` or `deny`. `tool` may end in `*`.

    A rule with the same selectors takes the place of the one before. A session's rules go with it.
    """
    name = tool_pattern(tool)
    verdict = inputs.choice(decision, TOOL_DECISIONS, "The decision")
    kind = inputs.optional_identifier(agent_type, "agent_type")
    session = inputs.optional_identifier(session_id, "session_id")
    key = inputs.owner_key(owner)
    text = None if arguments is None else inputs.mapping(arguments, "arguments")
    if store._owner is not UNSET and key is None and session is None:
        key = store._owner
    _check_scope(store, session, key)
    with transaction_on(store.using):
        if session is not None:
            with store._write(session) as work:
                work.event("tool_rule_set", {"tool": name, "decision": verdict})
        row = _put(
            store.using,
            name,
            verdict,
            agent_type=kind,
            session_id=session,
            owner_id=key,
            arguments=None if text is None else documents.load(text),
        )
    return _value(row)


def list_tool_rules(
    store: Store,
    *,
    tool: str | None = None,
    decision: ToolDecision | None = None,
    agent_type: str | Unset | None = UNSET,
    session_id: str | Unset | None = UNSET,
    owner: Any = UNSET,
    arguments: Mapping[str, JSON] | Unset | None = UNSET,
) -> list[ToolRule]:
    """The rules with these selectors, the newest last. What is not given may be anything; `None` means
    that a rule has no such selector."""
    rows = models.ToolRule.objects.using(store.using).order_by("created_at", "rule_id")
    if tool is not None:
        rows = rows.filter(tool=tool_pattern(tool))
    if decision is not None:
        rows = rows.filter(decision=inputs.choice(decision, TOOL_DECISIONS, "The decision"))
    if not isinstance(agent_type, Unset):
        rows = rows.filter(agent_type=inputs.optional_identifier(agent_type, "agent_type"))
    if not isinstance(session_id, Unset):
        rows = rows.filter(session_id=inputs.optional_identifier(session_id, "session_id"))
    if owner is not UNSET:
        rows = rows.filter(owner_id=inputs.owner_key(owner))
    if store._owner is not UNSET:
        mine = models.Session.objects.using(store.using).owned_by(store._owner).values("session_id")
        rows = rows.filter(Q(owner_id=store._owner) | Q(session_id__in=mine))
    found = [_value(row) for row in rows]
    if isinstance(arguments, Unset):
        return found
    wanted = None if arguments is None else dict(arguments)
    return [rule for rule in found if rule.arguments == wanted]


def delete_tool_rule(store: Store, rule_id: str) -> None:
    """Revoke a rule; `ToolRuleNotFound` if there is none."""
    key = inputs.identifier(rule_id, "The rule id")
    rows = models.ToolRule.objects.using(store.using).filter(rule_id=key)
    with transaction_on(store.using):
        row = rows.select_for_update().first()
        if row is None:
            raise ToolRuleNotFound(f"There is no tool rule {key!r}.")
        _check_scope(store, row.session_id, row.owner_id)
        if row.session_id is not None:
            with store._write(row.session_id) as work:
                work.event("tool_rule_deleted", {"tool": row.tool, "decision": row.decision})
        rows.delete()


def remember(work: UnitOfWork, tool: Any, scope: str, by: Mapping[str, Any]) -> None:
    """Allow calls of a tool from now on, because one was approved in the locked session: in this session, or
    in all of its owner."""
    name = tool_pattern(tool)
    if name.endswith("*"):
        raise InvalidInput("A rule for this name would be one for many tools; make it by set_tool_rule.")
    selectors: dict[str, Any] = {"session_id": None, "owner_id": None}
    if scope == "session":
        selectors["session_id"] = work.session.session_id
    elif work.session.owner_id is None:
        raise InvalidInput("The session has no owner to remember the approval for.")
    else:
        selectors["owner_id"] = work.session.owner_id
    row = _put(work.connection.alias, name, "allow", agent_type=None, arguments=None, **selectors)
    data = {"tool": name, "decision": "allow", "scope": scope, "rule_id": row.rule_id, "by": dict(by)}
    work.event("tool_rule_set", data)


def applicable(using: str, session_id: str, agent_type: str, owner_id: Any) -> list[ToolRule]:
    """Every rule that may be about calls of this session."""
    rows = models.ToolRule.objects.using(using).filter(
        Q(session_id=session_id) | Q(session_id__isnull=True),
        Q(agent_type=agent_type) | Q(agent_type__isnull=True),
        Q(owner_id=owner_id) | Q(owner_id__isnull=True) if owner_id is not None else Q(owner_id__isnull=True),
    )
    return [_value(row) for row in rows]


def decisive(rules: Iterable[ToolRule], tool: str, arguments: Any) -> ToolRule | None:
    """The rule that decides on a call: the most specific by scope, then arguments, then name; among equals
    the strictest."""
    fitting = [rule for rule in rules if _fits(rule, tool, arguments)]
    return min(fitting, key=_rank, default=None)


def forget(using: str, session_id: str) -> None:
    """A session is deleted, and its rules with it."""
    models.ToolRule.objects.using(using).filter(session_id=session_id).delete()


def tool_pattern(value: Any) -> str:
    """A tool's name, or the beginning of names and `*`."""
    name = inputs.identifier(value, "The tool")
    if "*" in name[:-1]:
        raise InvalidInput("A * stands at the end of a tool's name only.")
    return name


def _fits(rule: ToolRule, tool: str, arguments: Any) -> bool:
    named = tool.startswith(rule.tool[:-1]) if rule.tool.endswith("*") else rule.tool == tool
    return named and (
        rule.arguments is None or documents.canonical(rule.arguments) == documents.canonical(arguments)
    )


def _rank(rule: ToolRule) -> tuple[int, bool, bool, int]:
    scope = 3
    if rule.session_id is not None:
        scope = 0
    elif rule.owner_id is not None:
        scope = 1
    elif rule.agent_type is not None:
        scope = 2
    strictness = _STRICTEST_FIRST.index(rule.decision)
    return scope, rule.arguments is None, rule.tool.endswith("*"), strictness


def _check_scope(store: Store, session_id: str | None, owner_id: Any) -> None:
    """A session must be there. A store of one owner makes and revokes rules of that owner only."""
    if session_id is not None:
        store._read(session_id, ("session_id",))
    elif store._owner is not UNSET and owner_id != store._owner:
        raise InvalidInput("A store of one owner keeps rules of its own owner.")


def _put(
    using: str,
    tool: str,
    decision: str,
    *,
    agent_type: str | None,
    session_id: str | None,
    owner_id: Any,
    arguments: dict[str, JSON] | None,
) -> models.ToolRule:
    """Store a rule, in the place of one with the same selectors."""
    selectors = {
        "tool": tool,
        "agent_type": agent_type,
        "session_id": session_id,
        "owner_id": owner_id,
        "arguments": arguments,
    }
    row, _ = models.ToolRule.objects.using(using).update_or_create(
        rule_id=_rule_id(tool, agent_type, session_id, owner_id, arguments),
        defaults={"decision": decision},
        create_defaults={**selectors, "decision": decision, "created_at": timezone.now()},
    )
    return row


def _rule_id(tool: str, agent_type: str | None, session_id: str | None, owner_id: Any, arguments: Any) -> str:
    owner = None if owner_id is None else str(owner_id)
    return documents.digest(documents.canonical([tool, agent_type, session_id, owner, arguments]))


def _value(row: models.ToolRule) -> ToolRule:
    return ToolRule(
        rule_id=row.rule_id,
        tool=row.tool,
        decision=row.decision,
        agent_type=row.agent_type,
        session_id=row.session_id,
        owner_id=row.owner_id,
        arguments=row.arguments,
    )
