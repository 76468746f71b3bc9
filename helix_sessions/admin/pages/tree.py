"""A session's tree of sub-sessions."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.utils import timezone

from helix_sessions.admin import decryption
from helix_sessions.admin.base import stored
from helix_sessions.admin.presentation import LIST_COLUMNS, Chip, is_ended, reason, status_chip
from helix_sessions.messages.usage import totals_of
from helix_sessions.models import Session, SubSessionRef
from helix_sessions.types import UsageTotals

MOST_NODES = 500
DEEPEST = 20


@dataclass(slots=True, kw_only=True)
class Node:
    """A sub-session: its row, or, if that is remote or does not exist yet, the parent's reference."""

    session_id: str
    agent_type: str
    status: str
    session: Session | None = None
    mode: str = ""
    location: str = "local"
    parent_tool_call_id: str | None = None
    children: list["Node"] = field(default_factory=list)

    @property
    def chip(self) -> Chip:
        """Its status."""
        return status_chip(self.status)

    @property
    def took(self) -> timedelta | None:
        """From its creation to its end, or until now."""
        if self.session is None:
            return None
        return (self.session.status_since if is_ended(self.session) else timezone.now()) - (
            self.session.created_at
        )

    @property
    def used(self) -> UsageTotals:
        """What it has used by itself."""
        return totals_of(self.session.usage if self.session is not None else None)

    @property
    def error(self) -> str:
        """Why it failed."""
        if self.session is None or self.status != "failed":
            return ""
        return reason(decryption.settle(self.session))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """What is below a session."""

    nodes: list[Node]
    count: int
    is_cut: bool


def tree(session_id: str) -> Tree:
    """The tree below a session, level by level: two queries each, cycles end."""
    top = Node(session_id=session_id, agent_type="", status="")
    seen, level, is_cut = {session_id: top}, [top], False
    for _depth in range(DEEPEST):
        if not level:
            break
        below = _children([node.session_id for node in level])
        level = []
        for parent_id, node in below:
            if node.session_id in seen:
                continue
            if len(seen) > MOST_NODES:
                is_cut = True
                break
            seen[node.session_id] = node
            seen[parent_id].children.append(node)
            level.append(node)
    return Tree(nodes=top.children, count=len(seen) - 1, is_cut=is_cut or bool(level))


def size(session_id: str) -> int:
    """How many the tree lists, without reading them."""
    seen, level = {session_id}, [session_id]
    for _depth in range(DEEPEST):
        if not level or len(seen) > MOST_NODES:
            break
        refs = stored(SubSessionRef).filter(session_id__in=level).values_list("sub_session_id", flat=True)
        rows = stored(Session).filter(parent_session_id__in=level).values_list("session_id", flat=True)
        most = MOST_NODES + 1
        level = [key for key in dict.fromkeys([*refs[:most], *rows[:most]]) if key not in seen]
        seen.update(level)
    return min(len(seen) - 1, MOST_NODES)


def _children(parents: list[str]) -> list[tuple[str, Node]]:
    refs = list(
        stored(SubSessionRef)
        .filter(session_id__in=parents)
        .order_by("session_id", "seq")
        .defer("result")[: MOST_NODES + 1]
    )
    local = {ref.sub_session_id for ref in refs if ref.location == "local"}
    rows = stored(Session).only(*LIST_COLUMNS, "usage", "error", "failure_reason")
    found = {row.session_id: row for row in rows.filter(parent_session_id__in=parents)[: MOST_NODES + 1]}
    elsewhere = local - set(found)
    if elsewhere:
        found.update((row.session_id, row) for row in rows.filter(session_id__in=elsewhere))
    nodes = [(ref.session_id, _of_ref(ref, found.pop(ref.sub_session_id, None))) for ref in refs]
    nodes += [(str(row.parent_session_id), _of_row(row)) for row in found.values()]
    return nodes


def _of_ref(ref: SubSessionRef, row: Session | None) -> Node:
    if ref.location != "local":
        row = None
    about: dict[str, Any] = {
        "mode": ref.mode,
        "location": ref.location,
        "parent_tool_call_id": ref.parent_tool_call_id,
    }
    if row is None:
        return Node(session_id=ref.sub_session_id, agent_type=ref.agent_type, status=ref.status, **about)
    return _of_row(row, **about)


def _of_row(row: Session, **about: Any) -> Node:
    return Node(session_id=row.session_id, agent_type=row.agent_type, status=row.status, session=row, **about)
