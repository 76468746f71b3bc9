"""Fills a database for `bench.admin`: the sessions of two busy weeks, made by the server out of one.

Nearly all have ended well. One in a hundred failed, for one of forty causes, and two thousand of them in one
bad hour; some run under the leases of eight workers, some of these are silent, some wait for an approval,
some can run and no worker takes them, some have expired. One session has a tenth of all events.
"""

from time import perf_counter

_SESSIONS = """
INSERT INTO helix_sessions_session ({columns})
SELECT {values} FROM helix_sessions_session, generate_series(1, {count}) AS n WHERE session_id = 'original'
"""

_FAILED = "(n %% 100 = 3 OR n BETWEEN 30000 AND 32001)"
_ACTIVE = "n %% 20 IN (4, 5)"
_RUNNING = "n < 30000 AND n %% 20 = 4"
_SILENT = "n < 30000 AND n %% 100 = 4"
_WAITING = "n %% 700 = 5 AND n %% 20 = 5"
_PAUSED = "n %% 20 = 6"
_AGO = "created_at - n * interval '1.2 seconds'"

_MADE = {
    "session_id": "'filled-' || lpad(n::text, 8, '0')",
    "user_id": "'user-' || n %% 1000",
    "agent_type": "'agent-' || n %% 12",
    "status": f"""CASE WHEN {_FAILED} THEN 'failed' WHEN {_ACTIVE} THEN 'active' WHEN {_PAUSED} THEN 'paused'
        ELSE 'completed' END""",
    "created_at": _AGO,
    "status_since": _AGO,
    "updated_at": _AGO,
    "last_agent_activity_at": f"CASE WHEN {_SILENT} THEN {_AGO} - interval '1 hour' ELSE created_at END",
    "expires_at": "CASE WHEN n %% 50 = 5 THEN created_at - n * interval '1 second' END",
    "run_id": f"CASE WHEN {_RUNNING} THEN 'run' END",
    "lease_owner": f"CASE WHEN {_RUNNING} THEN 'worker-' || n %% 8 END",
    "lease_expires_at": f"""CASE WHEN {_SILENT} THEN {_AGO} WHEN {_RUNNING} THEN created_at + interval '1 day'
        END""",
    "awaiting_client": _WAITING,
    "waiting_since": f"CASE WHEN {_WAITING} THEN {_AGO} END",
    "pending_client_tool_calls": f"""CASE WHEN {_WAITING} THEN json_build_object('call', json_build_object(
        'tool_call_id', 'call', 'tool_name', (ARRAY['pay', 'refund', 'send', 'delete'])[1 + n %% 4],
        'kind', 'approval', 'arguments', json_build_object('amount', n), 'submitted_at', null)) END""",
    "error_fingerprint": f"""CASE WHEN n BETWEEN 30000 AND 32001 THEN md5('cause 0')
        WHEN {_FAILED} THEN md5('cause ' || n / 100 %% 40) END""",
    "runnable_at": f"""CASE WHEN n %% 900 = 5 AND {_ACTIVE} THEN created_at - interval '1 hour'
        WHEN {_RUNNING} THEN created_at + interval '1 day' END""",
    "interrupt_requested_at": "CASE WHEN n %% 10000 = 4 THEN created_at - interval '1 hour' END",
    "pending_inputs": "CASE WHEN n %% 10000 = 6 THEN 900 WHEN n %% 100 = 6 THEN 2 ELSE 0 END",
    "head_seq": "{per_session}",
    "message_count": "n %% 40",
    "tags": """CASE WHEN n %% 1000 = 0 THEN '["vip"]'::json ELSE '[]'::json END""",
    "error": f"""CASE WHEN {_FAILED} THEN json_build_object('code', 'timeout',
        'message', 'host ' || n || ' did not answer') END""",
    "usage": "json_build_object('input_tokens', n %% 5000, 'output_tokens', 10, 'cost', (n %% 997) / 1000.0)",
}

_WORDS = """
INSERT INTO helix_sessions_messagewords (session_id, seq, searchable)
SELECT 'filled-' || lpad(n::text, 8, '0'), 1,
       'where is my parcel it was sent to street ' || n || ' on day ' || n %% 365
FROM generate_series(1, {sessions}) AS n
"""

_RUNS = """
INSERT INTO helix_sessions_run (session_id, run_id, turn, status, step_count, start_sequence, end_sequence,
                                usage, metadata, started_at, ended_at)
SELECT 'filled-' || lpad(n::text, 8, '0'), 'run', 1,
       CASE WHEN n %% 100 = 3 OR n BETWEEN 30000 AND 32001 THEN 'failed' ELSE 'completed' END, 2, 0,
       {per_session},
       json_build_object('input_tokens', 900, 'output_tokens', 40, 'cost', 0.01, 'model', 'small-' || n %% 3),
       '{{}}', now() - n * interval '1.2 seconds' - interval '20 seconds', now() - n * interval '1.2 seconds'
FROM generate_series(1, {sessions}) AS n
"""

_INPUTS = """
INSERT INTO helix_sessions_input (session_id, input_id, prompt, delivery, admitted_delivery, admitted_seq,
                                  created_at)
SELECT 'filled-' || lpad(n::text, 8, '0'), 'input-' || i, '{{"content": "Go on."}}', 'queue', 'queue', i,
       now() - n * interval '1.2 seconds'
FROM generate_series(6, {sessions}, 100) AS n,
     generate_series(1, CASE WHEN n %% 10000 = 6 THEN 900 ELSE 2 END) AS i
"""

_WORKERS = """
INSERT INTO helix_sessions_worker (owner, host, pid, concurrency, agents, driven, failed, started_at, seen_at)
SELECT 'worker-' || n, 'host-' || n %% 2, 100 + n, 200, '["*"]', 1000, 10, now() - interval '1 day',
       now() + interval '1 hour'
FROM generate_series(0, 7) AS n
"""

_EVENTS = """
INSERT INTO helix_sessions_event (session_id, seq, type, data, created_at)
SELECT 'filled-' || lpad(n::text, 8, '0'), seq,
       (ARRAY['note', 'model_called', 'assistant_message', 'tool_called', 'tool_responded'])[1 + seq %% 5],
       '{{"tool_call_id": "call", "tool_name": "search"}}', now() + seq * interval '1 second'
FROM generate_series(1, {sessions}) AS n, generate_series(1, {per_session}) AS seq
"""

_LONG_LOG = """
INSERT INTO helix_sessions_event (session_id, seq, type, data, message_position, created_at)
SELECT 'original', seq,
       (ARRAY['state_saved', 'run_updated', 'user_message', 'assistant_message', 'note'])[1 + seq %% 5],
       CASE WHEN seq %% 5 IN (2, 3) THEN NULL ELSE '{{"step_count": 1, "checkpoint_id": "c"}}'::json END,
       CASE WHEN seq %% 5 IN (2, 3) THEN seq END, now()
FROM generate_series({first}, {last}) AS seq
"""

_LONG_TRANSCRIPT = """
INSERT INTO helix_sessions_message (session_id, position, seq, role, content)
SELECT 'original', seq, seq, CASE WHEN seq %% 5 = 2 THEN 'user' ELSE 'assistant' END,
       json_build_object('role', 'user', 'content', repeat('All is well. ', 40))
FROM generate_series({first}, {last}) AS seq WHERE seq %% 5 IN (2, 3)
"""


def fill(sessions: int, events: int) -> None:
    """Migrate an empty database and fill it."""
    from django.core.management import call_command
    from django.db import connection

    call_command("migrate", verbosity=0)
    insert(sessions, events, tell=True)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def insert(sessions: int, events: int, *, tell: bool = False) -> None:
    """The rows, in a database whose tables are empty."""
    from django.db import connection
    from django.utils import timezone

    from helix_sessions.models import Session
    from helix_sessions.store import SessionStore
    from helix_sessions.store.maintenance.run_tallies import tally

    store = SessionStore()
    store.create_session(
        "original", agent_type="agent-0", metadata={"channel": "chat"}, custom_state={"n": 1}
    )
    store.create_checkpoint("original")
    head = store.load_state("original").head_seq
    long_log = events // 10
    per_session = max((events - long_log) // sessions, 1)
    columns = [field.column for field in Session._meta.concrete_fields]
    made = {name: value.replace("{per_session}", str(per_session)) for name, value in _MADE.items()}
    values = ", ".join(made.get(name, f'"{name}"') for name in columns)
    names = ", ".join(f'"{name}"' for name in columns)
    place = {"first": head + 1, "last": long_log, "sessions": sessions, "per_session": per_session}
    with connection.cursor() as cursor:
        for sql in (
            _SESSIONS.format(columns=names, values=values, count=sessions),
            _RUNS.format(**place),
            _INPUTS.format(**place),
            _WORKERS,
            _EVENTS.format(**place),
            _LONG_LOG.format(**place),
            _LONG_TRANSCRIPT.format(**place),
            _WORDS.format(**place),
        ):
            started = perf_counter()
            cursor.execute(sql.replace("%%", "%"))
            if tell:
                print(f"{cursor.rowcount:>12,} rows in {perf_counter() - started:.0f} s", flush=True)
        cursor.execute(
            "UPDATE helix_sessions_session SET head_seq = %s WHERE session_id = 'original'", [long_log]
        )
    while tally(store.using, timezone.now()):  # as a worker does
        pass
