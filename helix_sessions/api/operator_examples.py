"""Examples of what operators set: rules, limits, webhooks, schedules."""

from helix_sessions.api.examples import AT, SESSION_ID

TOOL_RULE = {
    "rule_id": "01942f5e-6f6c-7000-8000-000000000001",
    "tool": "refund",
    "decision": "ask",
    "agent_type": "support",
    "session_id": None,
    "owner_id": None,
    "arguments": None,
}

SPEND_LIMIT = {
    "limit_id": "01942f5e-6f6c-7000-8000-000000000004",
    "scope": "owner",
    "key": "7",
    "window": "month",
    "usd": 20.0,
    "tokens": None,
    "warn_at": 0.8,
    "enabled": True,
}

SPEND_STATUS = {
    "scope": "owner",
    "key": "7",
    "window": "month",
    "used_usd": 3.25,
    "used_tokens": 410000,
    "limit_usd": 20.0,
    "limit_tokens": None,
    "resets_at": "2026-02-01T00:00:00Z",
}

WEBHOOK = {
    "webhook_id": "01942f5e-6f6c-7000-8000-000000000002",
    "url": "https://hooks.example.com/agents",
    "events": ["run.finished", "call.waiting"],
    "enabled": True,
    "created_at": AT,
}

WEBHOOK_DELIVERY = {
    "webhook_id": WEBHOOK["webhook_id"],
    "message_id": "msg_01942f5e-6f6c-7000-8000-000000000003",
    "type": "run.finished",
    "session_id": SESSION_ID,
    "body": '{"type":"run.finished","timestamp":"2026-01-02T03:04:05Z",'
    '"data":{"session_id":"' + SESSION_ID + '","seq":9,"run_id":"run-1","status":"completed"}}',
    "state": "delivered",
    "attempts": 1,
    "created_at": AT,
    "due_at": None,
    "attempted_at": AT,
    "delivered_at": AT,
    "status_code": 204,
    "error": None,
}

NEW_SCHEDULE = {
    "name": "Morning digest",
    "cron": "0 8 * * 1-5",
    "timezone": "Europe/Berlin",
    "agent_type": "support",
    "prompt": "Summarize what came in since yesterday.",
}

SCHEDULE = {
    "schedule_id": "01942f5e-6f6c-7000-8000-000000000004",
    **NEW_SCHEDULE,
    **{"owner_id": None, "session": "new", "overlap": "skip", "catch_up": 1, "priority": 0},
    **{"enabled": True, "created_at": AT, "last_firing_at": None, "last_error": None},
    "next_firings": [f"2026-01-{day}T07:00:00+00:00" for day in ("05", "06", "07", "08", "09")],
}

SCHEDULE_FIRING = {
    "schedule_id": SCHEDULE["schedule_id"],
    "firing_at": "2026-01-05T07:00:00+00:00",
    "made_at": "2026-01-05T07:00:01+00:00",
    "state": "fired",
    "session_id": f"schedule-{SCHEDULE['schedule_id']}-20260105T070000",
    "input_id": f"schedule-{SCHEDULE['schedule_id']}-20260105T070000",
    "error": None,
}
