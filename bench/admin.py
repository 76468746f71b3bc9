"""`python -m bench.admin [--sessions N] [--events N]`: how quick the operator's console is on PostgreSQL.

Made by the server out of one: many sessions, and one of them with a tenth of all events. Times are those of
whole requests, from the address to the page, as a superuser; the median of several after one to warm up.
Beside it are the time spent waiting for the database and the processor time of this process, which a busy
machine changes less.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter, process_time
from typing import Any

from tests.postgres import private_server

ROUNDS = 9
LIST_BAR = 300.0
PAGE_BAR = 500.0
LIST = "/admin/helix_sessions/session/"

_SESSIONS = """
INSERT INTO helix_sessions_session ({columns})
SELECT {values} FROM helix_sessions_session, generate_series(1, {count}) AS n WHERE session_id = 'original'
"""

_MADE = {
    "session_id": "'filled-' || lpad(n::text, 8, '0')",
    "user_id": "'user-' || n %% 1000",
    "agent_type": "'agent-' || n %% 12",
    "status": "(ARRAY['completed','completed','completed','failed','active','active','paused'])[1 + n %% 7]",
    "created_at": "created_at - n * interval '1.2 seconds'",
    "status_since": "created_at - n * interval '1.2 seconds'",
    "updated_at": "created_at - n * interval '1.2 seconds'",
    "expires_at": "CASE WHEN n %% 50 = 0 THEN created_at - n * interval '1 second' END",
    "run_id": "CASE WHEN n %% 500 = 4 THEN 'run' END",
    "awaiting_client": "n %% 700 = 5",
    "waiting_since": "CASE WHEN n %% 700 = 5 THEN created_at - n * interval '1.2 seconds' END",
    "pending_client_tool_calls": """CASE WHEN n %% 700 = 5 THEN '{"call": {"tool_call_id": "call",
        "tool_name": "pay", "kind": "approval", "arguments": {"amount": 20}, "submitted_at": null}}'::json
        END""",
    "error_fingerprint": "CASE WHEN n %% 7 = 3 THEN md5('cause ' || n %% 40) END",
    "runnable_at": "CASE WHEN n %% 900 = 4 THEN created_at - interval '1 hour' END",
    "head_seq": "{per_session}",
    "message_count": "n %% 40",
    "tags": """CASE WHEN n %% 1000 = 0 THEN '["vip"]'::json ELSE '[]'::json END""",
    "error": """CASE WHEN n %% 7 = 3 THEN json_build_object('code', 'timeout',
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
       (ARRAY['completed', 'completed', 'completed', 'failed'])[1 + n %% 4], 2, 0, {per_session},
       '{{"input_tokens": 900, "output_tokens": 40, "cost": 0.01, "model": "small"}}', '{{}}',
       now() - n * interval '1.2 seconds' - interval '20 seconds', now() - n * interval '1.2 seconds'
FROM generate_series(1, {sessions}) AS n
"""

_EVENTS = """
INSERT INTO helix_sessions_event (session_id, seq, type, data, created_at)
SELECT 'filled-' || lpad(n::text, 8, '0'), seq, 'note', '{{"text": "something happened"}}', now()
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.admin", description=__doc__)
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=10_000_000)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the server is stopped
    with private_server(shared_buffers="1GB", max_wal_size="8GB") as server:
        os.environ["DATABASE_URL"] = server.url
        os.environ["HELIX_DEBUG"] = "0"
        os.environ.setdefault("HELIX_SECRET_KEY", "bench")
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        _fill(arguments.sessions, arguments.events)
        sys.exit(_measure(arguments.sessions, arguments.events))


def _fill(sessions: int, events: int) -> None:
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from helix_sessions.models import Session
    from helix_sessions.store import SessionStore

    call_command("migrate", verbosity=0)
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
            _EVENTS.format(**place),
            _LONG_LOG.format(**place),
            _LONG_TRANSCRIPT.format(**place),
            _WORDS.format(**place),
        ):
            started = perf_counter()
            cursor.execute(sql.replace("%%", "%"))
            print(f"{cursor.rowcount:>12,} rows in {perf_counter() - started:.0f} s", flush=True)
        cursor.execute(
            "UPDATE helix_sessions_session SET head_seq = %s WHERE session_id = 'original'", [long_log]
        )
        cursor.execute("VACUUM ANALYZE")


def _measure(sessions: int, events: int) -> int:
    from django.conf import settings
    from django.contrib.auth import get_user_model
    from django.core.cache import cache
    from django.test import Client

    settings.ALLOWED_HOSTS = ["*"]
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("bench", password="bench"))
    some, middle = f"filled-{sessions // 2:08}", f"{LIST}original/timeline/?"
    addresses = {
        "list": (LIST, LIST_BAR),
        "list, last page": (f"{LIST}?p=200", LIST_BAR),
        "list, status": (f"{LIST}?status=failed", LIST_BAR),
        "list, agent type": (f"{LIST}?agent=agent-3", LIST_BAR),
        "list, stuck": (f"{LIST}?is=stuck", LIST_BAR),
        "list, waiting": (f"{LIST}?is=waiting", LIST_BAR),
        "waiting": (f"{LIST}waiting/", LIST_BAR),
        "waiting, in the middle": (f"{LIST}waiting/?after={_middle_of_waiting()}", LIST_BAR),
        "list, expired": (f"{LIST}?is=expired", LIST_BAR),
        "list, a day": (f"{LIST}?created_from=2020-01-01&created_to=2099-01-01", LIST_BAR),
        "list, id": (f"{LIST}?q={some}", LIST_BAR),
        "list, beginning of an id": (f"{LIST}?q={some[:-4]}", LIST_BAR),
        "list, user": (f"{LIST}?q=user-77", LIST_BAR),
        "list, by cost": (f"{LIST}?o=-5", LIST_BAR),
        "list, by activity": (f"{LIST}?o=6&status=completed", LIST_BAR),
        "list, four filters": (f"{LIST}?agent=agent-3&status=failed&created_from=2020-01-01", LIST_BAR),
        "list, part of an id": (f"{LIST}?q={some[3:-2]}", LIST_BAR),
        "list, tag": (f"{LIST}?q=tag:vip", LIST_BAR),
        "list, metadata": (f"{LIST}?q=channel=chat", LIST_BAR),
        "list, error": (f"{LIST}?q=error:host 7 did", LIST_BAR),
        "list, a rare word": (f"{LIST}?q=text:street 4711", LIST_BAR),
        "list, a common word": (f"{LIST}?q=text:parcel", LIST_BAR),
        "list, nothing found": (f"{LIST}?q=nowhere to be found", LIST_BAR),
        "session": (f"{LIST}{some}/change/", PAGE_BAR),
        "session, long log": (f"{LIST}original/change/", PAGE_BAR),
        "session, oldest first": (f"{middle}order=oldest", PAGE_BAR),
        "session, in the middle": (f"{middle}seq={events // 20}", PAGE_BAR),
        "session, state": (f"{LIST}original/state/", PAGE_BAR),
        "session, runs": (f"{LIST}original/runs/", PAGE_BAR),
        "now, an hour": (f"{LIST}now/panels/?window=hour", LIST_BAR),
        "now, a day": (f"{LIST}now/panels/?window=day", LIST_BAR),
        "now, a fortnight": (f"{LIST}now/panels/?window=fortnight", PAGE_BAR),
        "list, a cause": (f"{LIST}?cause={_cause()}&within=day", LIST_BAR),
        "now and dashboard, not kept": ("/admin/helix_sessions/", 2 * PAGE_BAR),
    }
    worst = 0
    for name, (address, bar) in addresses.items():
        before = cache.clear if name.startswith("now") else _nothing
        took, asked, busy = _medians_of(lambda address=address: client.get(address), before)
        worst |= took > bar
        verdict = "within" if took <= bar else "ABOVE"
        parts = f"{asked:>5.0f} ms database {busy:>5.0f} ms processor"
        print(f"{name:<26}{took:>6.0f} ms = {parts}   {verdict} {bar:.0f} ms", flush=True)
    return int(worst)


def _middle_of_waiting() -> str:
    from helix_sessions.models import Session
    from helix_sessions.store.engine import cursors

    rows = Session.objects.waiting().values_list("waiting_since", "session_id")
    return cursors.encode("waiting", *rows[rows.count() // 2])


def _cause() -> str:
    from hashlib import md5

    return md5(b"cause 3", usedforsecurity=False).hexdigest()


def _nothing() -> None:
    pass


def _medians_of(get: Callable[[], Any], before: Callable[[], None]) -> tuple[float, float, float]:
    from django.db import connection

    asking: list[float] = []

    def watch(execute: Any, *arguments: Any) -> Any:
        started = perf_counter()
        try:
            return execute(*arguments)
        finally:
            asking.append(perf_counter() - started)

    times = []
    for _ in range(ROUNDS + 1):
        before()
        asking.clear()
        started, worked = perf_counter(), process_time()
        with connection.execute_wrapper(watch):
            assert get().status_code == 200
        times.append((perf_counter() - started, sum(asking), process_time() - worked))
    took, asked, busy = (1000 * median(column) for column in zip(*times[1:], strict=True))
    return took, asked, busy


if __name__ == "__main__":
    main()
