"""The examples of the schema: one session of a support agent, seen from every side."""

from typing import Any

AT = "2030-01-15T09:30:00+00:00"
SESSION_ID = "support-4711"
CHECKPOINT_ID = "step-1"

MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Where is my parcel?"},
    {"role": "assistant", "content": "It arrives tomorrow."},
]

SUMMARY: dict[str, Any] = {
    "session_id": SESSION_ID,
    "agent_type": "support",
    "status": "active",
    "version": 2,
    "step_count": 1,
    "message_count": 2,
    "user_id": "customer-1",
    "owner_id": 1,
    "tags": ["parcel"],
    "parent_session_id": None,
    "expires_at": None,
    "created_at": AT,
    "updated_at": AT,
}

STATE: dict[str, Any] = {
    **SUMMARY,
    "stream_id": None,
    "custom_state": {"parcel": {"number": "Z-9"}},
    "output": None,
    "error": None,
    "failure_reason": None,
    "interrupt_context": None,
    "pending_client_tool_calls": None,
    "suspended_awaiting_children": None,
    "suspended_step_id": None,
    "suspension_context": None,
    "completed_client_tool_calls": None,
    "client_tool_call_ownership": None,
    "tracing_context": None,
    "location": None,
    "root_session_id": None,
    "forked_from": None,
    "mode": "standard",
    "resume_count": 0,
    "head_seq": 5,
    "checkpoint_id": CHECKPOINT_ID,
    "checkpointed_at": AT,
    "checkpoint_source": "save",
    "metadata": {"tier": "gold"},
    "workspace_ref": None,
    "runnable_at": None,
    "last_agent_activity_at": AT,
}

NEW_SESSION = {"agent_type": "support", "tags": ["parcel"], "metadata": {"tier": "gold"}}

AGENT_SESSION: dict[str, Any] = {
    "info": {
        "session_id": SESSION_ID,
        "parent_id": None,
        "status": "active",
        "version": 3,
        "agent_name": "support",
        "agent_label": "Support",
        "created_at": AT,
        "updated_at": AT,
    },
    "definition": {
        "name": "support",
        "label": "Support",
        "system_prompt": "Be kind.",
        "model": "small",
        "budget": None,
        "metadata": {},
    },
    "state": {
        "message_count": 2,
        "metadata": {"tier": "gold"},
        "system_prompt": "Be kind.",
        "model": "large",
        "budget": {
            "max_steps": 20,
            "max_tokens": None,
            "max_seconds": None,
            "max_cost": None,
            "deadline": None,
        },
        "execution_count": 1,
        "execution": {"status": "completed", "error": None, "steps": 1, "usage": {"tokens": 120}},
    },
}

OWNED_STATE = {
    "custom_state": {"parcel": {"number": "Z-9"}},
    "status": "active",
    "step_count": 1,
    "tags": ["parcel"],
    "metadata": {"tier": "gold"},
}

COMMIT = {
    "state": OWNED_STATE,
    "append_messages": MESSAGES,
    "checkpoint_meta": {"checkpoint_id": CHECKPOINT_ID},
}

COMMITTED = {
    "version": 2,
    "checkpoint_id": CHECKPOINT_ID,
    "message_count": 2,
    "head_seq": 5,
    "replayed": False,
}

CHECKPOINT = {
    "checkpoint_id": CHECKPOINT_ID,
    "session_id": SESSION_ID,
    "step_count": 1,
    "status": "active",
    "source": "save",
    "state": STATE,
    "message_count": 2,
    "run_id": None,
    "step_id": None,
    "metadata": {},
    "created_at": AT,
}

WRITES = [{"op": "set", "path": ["parcel", "found"], "value": True}]

STAGED = {"step_id": "step-2", "tool_call_id": "call-1", "writes": WRITES, "staged_at": AT}

RUN: dict[str, Any] = {
    "run_id": "run-1",
    "session_id": SESSION_ID,
    "turn": 1,
    "status": "running",
    "step_count": 0,
    "start_sequence": 5,
    "end_sequence": None,
    "output": None,
    "error": None,
    "usage": None,
    "metadata": {},
    "started_at": AT,
    "ended_at": None,
}

ENDED_RUN = {**RUN, "status": "completed", "end_sequence": 7, "usage": {"tokens": 120}, "ended_at": AT}

INPUT = {
    "input_id": "msg-1",
    "session_id": SESSION_ID,
    "prompt": "Where is my parcel?",
    "delivery": "steer",
    "admitted_seq": 6,
    "promoted_seq": None,
    "created_at": AT,
}

OCCUPANCY = {
    "session_id": SESSION_ID,
    "status": "active",
    "run_id": "run-1",
    "pending_inputs": 1,
    "owner": "worker-1",
    "idle": False,
}

EVENT = {
    "session_id": SESSION_ID,
    "seq": 6,
    "type": "tool_called",
    "data": {"tool_call_id": "call-1", "name": "track"},
    "turn_id": None,
    "run_id": None,
    "created_at": AT,
}

PROJECTED_MESSAGE = {
    "role": "user",
    "content": "Where is my parcel?",
    "tool_call_id": None,
    "seq": 2,
    "created_at": AT,
}

INTERRUPT = {"interrupt": {"reason": "The user left.", "requested_at": AT}}

REF = {"sub_session_id": "lookup-1", "agent_type": "lookup", "parent_tool_call_id": "call-1"}

STORED_REF = {
    **REF,
    "status": "active",
    "mode": "ephemeral",
    "location": "local",
    "result": None,
    "created_at": AT,
    "updated_at": AT,
}

CALL: dict[str, Any] = {"id": "call-1", "name": "refund", "arguments": {"amount": 20}}

PENDING_CALL: dict[str, Any] = {
    "tool_call_id": "call-1",
    "tool_name": "refund",
    "arguments": {"amount": 20},
    "kind": "approval",
    "approval_id": "refund-1",
    "deadline": "2030-01-16T09:30:00+00:00",
    "response_schema": None,
}

ARGUMENTS_DIGEST = "8c0d80c4fe2d8a9cfa117243656d2d1cec179ac5a7814fd836f70e5d7ecd1c61"

SUSPENSION: dict[str, Any] = {
    "kind": "client_tool",
    "state": OWNED_STATE,
    "run_id": "run-1",
    "append_messages": [{"role": "assistant", "content": None, "tool_calls": [CALL]}],
    "pending_calls": [PENDING_CALL],
    "checkpoint_meta": {"checkpoint_id": CHECKPOINT_ID},
}

SCHEDULED = {"scheduled": True, "runnable_at": AT}

SUBMISSION = {"outcome": "accepted", "owner_session_id": SESSION_ID, "remaining": 0}

TURN: dict[str, Any] = {"state": STATE, "run": RUN}

RESUMPTION: dict[str, Any] = {
    "state": {**STATE, "resume_count": 1},
    "run": {**RUN, "run_id": "run-2", "turn": 2},
    "tool_messages": [],
    "approved": [
        {
            **PENDING_CALL,
            "arguments_digest": ARGUMENTS_DIGEST,
            "run_id": "run-1",
            "requested_at": AT,
            "response": {"approved": True},
            "submitted_at": AT,
        }
    ],
    "respawn": [],
}

LEASE = {
    "session_id": SESSION_ID,
    "owner": "worker-1",
    "fence": 3,
    "expires_at": "2026-01-02T03:04:35+00:00",
}

STREAM_TICKET = {
    "url": f"https://example.com/api/sessions/{SESSION_ID}/events/stream/?ticket=WyI3Il0:1tXq:s1gn",
    "expires_at": "2026-01-02T03:09:05+00:00",
}

FEEDBACK = {
    "position": 1,
    "message_seq": 3,
    "rating": "up",
    "comment": "Quick and right.",
    "by": "7",
    "created_at": "2026-01-02T03:04:05+00:00",
}

BLOB = {
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "size": 4,
    "media_type": "image/png",
}

BLOB_ADDRESS = {
    "url": "https://example.com/api/blobs/WyJzdXBwb3J0LTQ3MTEiLCI5Zjg2Il0:1vX2aB:3q2-7wE/",
    "expires_at": "2026-01-02T03:09:05+00:00",
}

UI_MESSAGE = {"id": "msg-1", "role": "user", "parts": [{"type": "text", "text": "Where is my parcel?"}]}

CHAT = {"id": "chat-1", "messages": [UI_MESSAGE], "trigger": "submit-message"}

AG_UI = {
    "threadId": "thread-1",
    "runId": "run-1",
    "messages": [{"id": "msg-1", "role": "user", "content": "Where is my parcel?"}],
}

ANSWER_LINK = {
    "token": "WyJzdXBwb3J0LTQ3MTEiLCJjYWxsLTEiXQ:1vX2aB:3q2-7wE",
    "url": "https://example.com/api/answers/WyJzdXBwb3J0LTQ3MTEiLCJjYWxsLTEiXQ:1vX2aB:3q2-7wE/",
    "expires_at": "2030-01-22T09:30:00+00:00",
}

ASKED_CALL = {
    "tool_name": "refund",
    "arguments": {"amount": 20},
    "kind": "approval",
    "requested_at": AT,
    "deadline": "2030-01-16T09:30:00+00:00",
    "is_answered": False,
    "expires_at": "2030-01-22T09:30:00+00:00",
    "arguments_digest": ARGUMENTS_DIGEST,
    "response_schema": None,
    "may_edit": False,
}

COMPACTION_MESSAGE = {
    "role": "user",
    "kind": "compaction",
    "content": "Summary of the conversation so far:\n\nThe customer waits for a parcel.",
}

CONTEXT = {
    "baseline": "You help customers of a shop.",
    "messages": [COMPACTION_MESSAGE, {"role": "user", "content": "At what time?"}],
    "estimated_tokens": 38,
}

COMPACTION = {
    "session_id": SESSION_ID,
    "seq": 5,
    "from_seq": 2,
    "to_seq": 3,
    "reason": "manual",
    "summary": "The customer waits for a parcel.",
    "message": COMPACTION_MESSAGE,
    "message_count": 2,
    "created_at": AT,
}

MEMORY = {
    "namespace": ["owner", "7"],
    "key": "tea",
    "value": {"text": "Likes green tea."},
    "created_at": AT,
    "updated_at": AT,
    "expires_at": None,
    "score": None,
}
