"""`python -m bench.inbox [--sessions N] [--inputs N] [--workers N]`: inbox and runner on PostgreSQL.

Three targets. Workers that are killed at random (SIGKILL) drain many sessions: every input is promoted
exactly once and in order, no tool runs twice, no session is left behind. Admission reaches 0.6 of the
throughput of one bare INSERT in a transaction of its own, on the same connection, both durable. An idle
worker sends at most one query in a second.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter, sleep
from typing import Any

from bench.databases import DURABLE
from tests.postgres import private_server

ADMISSION_BAR = 0.6
IDLE_BAR = 1.0
ROUNDS = 7
CALLS = 400
LEASE = "3"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.inbox", description=__doc__)
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--inputs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("drain", "admission", "idle"))
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the server is stopped
    with private_server(**DURABLE) as server, tempfile.TemporaryDirectory() as folder:
        os.environ["DATABASE_URL"] = server.url
        os.environ["HELIX_DEBUG"] = "0"
        os.environ.setdefault("HELIX_SECRET_KEY", "bench")
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.runner.settings"
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        passed = True
        if arguments.only in (None, "admission"):
            passed &= measure_admission()
        if arguments.only in (None, "idle"):
            passed &= measure_idle()
        if arguments.only in (None, "drain"):
            passed &= measure_drain(arguments, Path(folder, "notes"))
        sys.exit(not passed)


def measure_admission() -> bool:
    """In turns, the rounds of all side by side, so that a busy machine slows all. Admission to one session
    that this connection writes again and again, and to sessions it has not written before."""
    from django.db import connection, transaction

    from helix_sessions.store import SessionStore

    store = SessionStore()
    store.create_session("admitting", agent_type="none")
    for number in range(ROUNDS * CALLS):
        store.create_session(f"many-{number}", agent_type="none")
    connection.close()  # with the rows that it remembers
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE bare (id text PRIMARY KEY, prompt json, created_at timestamptz)")
    numbers, sessions = iter(range(10**9)), iter(range(10**9))

    def bare() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            sql = "INSERT INTO bare VALUES (%s, %s, now())"
            cursor.execute(sql, [f"input-{next(numbers)}", '"Where is my parcel?"'])

    def admit() -> None:
        store.admit_input("admitting", "Where is my parcel?", resume=False)

    def admit_elsewhere() -> None:
        store.admit_input(f"many-{next(sessions)}", "Where is my parcel?", resume=False)

    same, other = [], []
    for _ in range(ROUNDS):
        insert = _rate(bare)
        ours = _rate(admit, before=lambda: store.promote_inputs("admitting", "steer"))
        elsewhere = _rate(admit_elsewhere)
        same.append(ours / insert)
        other.append(elsewhere / insert)
        print(f"  bare INSERT {insert:6.0f}/s   one session {ours:6.0f}/s   many sessions {elsewhere:6.0f}/s")
    passed = True
    for what, ratios in (("to one session", same), ("to many sessions", other)):
        ratio = median(ratios)
        name = f"admission {what}, of the throughput of a bare INSERT"
        passed &= _target(name, ratio, ADMISSION_BAR, ratio >= ADMISSION_BAR)
    return passed


def _rate(call: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> float:
    before()
    start = perf_counter()
    for _ in range(CALLS):
        call()
    return CALLS / (perf_counter() - start)


def measure_idle(seconds: float = 20.0) -> bool:
    """Counted by the server: transactions of this database while one worker has nothing to do."""
    worker = _worker()
    try:
        sleep(5)
        before, start = _transactions(), monotonic()
        sleep(seconds)
        rate = (_transactions() - before - 1) / (monotonic() - start)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)
    return _target("queries of an idle worker in a second", rate, IDLE_BAR, rate <= IDLE_BAR)


def _transactions() -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute("SELECT sum(xact_commit) FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def measure_drain(arguments: argparse.Namespace, notes: Path) -> bool:
    from helix_sessions.models import Input

    expected = _admit_all(arguments.sessions, arguments.inputs, notes)
    chance = random.Random(arguments.seed)
    workers = [_worker() for _ in range(arguments.workers)]
    start, kills, quiet_since = monotonic(), 0, None
    try:
        while Input.objects.pending().filter(session_id__in=expected).exists() or _unfinished():
            sleep(chance.uniform(0.5, 2.0))
            for index, worker in enumerate(workers):
                if worker.poll() is not None:
                    workers[index] = _worker()
            if kills < 30 and monotonic() - start > 5:
                index = chance.randrange(len(workers))
                workers[index].kill()
                workers[index].wait()
                workers[index] = _worker()
                kills += 1
            if monotonic() - start > 840:
                break
        quiet_since = monotonic()
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        for worker in workers:
            worker.wait(60)
    print(f"  drained in {quiet_since and quiet_since - start:.0f} s with {kills} workers killed")
    return _check(expected, notes)


def _admit_all(sessions: int, inputs: int, notes: Path) -> dict[str, list[str]]:
    from helix_sessions.store import SessionStore

    store = SessionStore()
    expected = {}
    for number in range(sessions):
        key = f"s{number:05}"
        store.create_session(key, agent_type="noting", user_id=str(notes))
        names = [f"{key}-{place}" for place in range(inputs)]
        for name in names:
            store.admit_input(key, name, input_id=name, delivery="queue")
        expected[key] = names
    return expected


def _unfinished() -> bool:
    from helix_sessions.models import Session

    rows = Session.objects.filter(agent_type="noting")
    return rows.running().exists() or rows.filter(lease_owner__isnull=False).leased().exists()


def _check(expected: dict[str, list[str]], notes: Path) -> bool:
    from helix_sessions.store import SessionStore
    from helix_sessions.transcripts import open_tool_calls

    store = SessionStore()
    left = out_of_order = open_calls = 0
    for key, names in expected.items():
        messages = store.get_messages(key).messages
        left += bool(store.list_inputs(key) or store.get_current_run(key))
        out_of_order += [message["id"] for message in messages if message["role"] == "user"] != names
        open_calls += bool(open_tool_calls(messages))
    ran = Counter(notes.read_text().splitlines())
    twice = sum(count > 1 for count in ran.values())
    broken = len(store.examine_sessions(session_ids=list(expected)[:200]))
    print(f"  tools ran {len(ran)} times of at most {sum(map(len, expected.values()))}")
    return all(
        [
            _target("sessions left behind", left, 0, left == 0),
            _target(
                "sessions with inputs not promoted once and in order",
                out_of_order,
                0,
                not out_of_order,
            ),
            _target("tools that ran twice", twice, 0, twice == 0),
            _target("transcripts with open calls", open_calls, 0, open_calls == 0),
            _target("findings of the doctor", broken, 0, broken == 0),
        ]
    )


def _worker() -> "subprocess.Popen[bytes]":
    command = [sys.executable, "manage.py", "run_sessions", "--concurrency", "4", "--lease", LEASE, "-v", "0"]
    return subprocess.Popen(command, cwd=Path(__file__).parent.parent)


def _target(what: str, value: float, target: float, passed: bool) -> bool:
    print(f"{'ok ' if passed else 'BAD'} {what}: {value:.2f} (target {target})", flush=True)
    return passed


if __name__ == "__main__":
    main()
