"""`python -m bench.admin [--sessions N] [--events N]`: how quick the operator's console is on PostgreSQL.

`bench.admin_fill` says of what. Times are those of whole requests, from the address to the page, as a
superuser; the median of several after one to warm up. Beside it are the time spent waiting for the database
and the processor time of this process, which a busy machine changes less.
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
        import django

        django.setup()
        from bench.admin_fill import fill

        fill(arguments.sessions, arguments.events)
        sys.exit(_measure(arguments.sessions, arguments.events))


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
        "now, a fortnight": (f"{LIST}now/panels/?window=fortnight", LIST_BAR),
        "workers": (f"{LIST}workers/", LIST_BAR),
        "list, a cause": (f"{LIST}?cause={_cause()}&within=day", LIST_BAR),
        "now and dashboard, not kept": ("/admin/helix_sessions/", 2 * PAGE_BAR),
    }
    worst = 0
    for name, (address, target) in addresses.items():
        before = cache.clear if name.startswith("now") else _nothing
        took, asked, busy = _medians_of(lambda address=address: client.get(address), before)
        worst |= took > target
        verdict = "within" if took <= target else "ABOVE"
        parts = f"{asked:>5.0f} ms database {busy:>5.0f} ms processor"
        print(f"{name:<26}{took:>6.0f} ms = {parts}   {verdict} {target:.0f} ms", flush=True)
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
