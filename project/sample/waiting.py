"""Tool calls that wait for a person or a client, as a suspended session keeps them."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.utils import timezone

from helix_sessions.types import Run


def pending_call(
    call_id: str,
    tool: str,
    arguments: Mapping[str, Any],
    run: Run,
    *,
    kind: str = "client_tool",
    approval_id: str | None = None,
    deadline_in: timedelta | None = None,
) -> dict[str, Any]:
    """An entry of `pending_client_tool_calls` that is not answered."""
    now = timezone.now()
    return {
        "tool_call_id": call_id,
        "tool_name": tool,
        "arguments": dict(arguments),
        "kind": kind,
        "approval_id": approval_id,
        "deadline": None if deadline_in is None else (now + deadline_in).isoformat(),
        "run_id": run.run_id,
        "requested_at": now.isoformat(),
        "response": None,
        "submitted_at": None,
    }
