"""What the bench makes of its numbers."""

from typing import Any

import pytest

from bench import http as bench_http
from bench.http_server import prepare
from bench.measure import Timing, p99
from bench.results import Results
from bench.scale import QUICK
from bench.soak import verdict
from bench.targets import targets


def test_a_percentile_lies_within_the_samples() -> None:
    assert p99([1.0, 2.0, 3.0]) == pytest.approx(2.98)
    assert p99([5.0]) == 5.0
    assert p99(range(101)) == 99


def test_the_verdict_of_a_soak_is_not_about_small_numbers() -> None:
    """Each name has its value in the first half and in the second, and whether that is flat."""
    rows = {
        "event, dead": (0, 5, True),
        "message, dead": (3_000, 9_000, False),
        "write 0, MB": (80, 81, True),
        "work 0, MB": (80, 160, False),
        "connections": (0, 1, True),
        "step, ms": (0.1, 0.3, True),
        "run, ms": (10.0, 20.0, False),
    }
    samples = [{name: row[number >= 20] for name, row in rows.items()} for number in range(40)]
    samples[-1]["list, p99 ms"] = 500  # before there were too few for one
    found = {target.what: target.verdict == "reached" for target in verdict(samples)}
    assert found == {name: row[2] for name, row in rows.items()}


def test_the_goals_of_the_adapters_are_targets() -> None:
    """How many times as fast ours is, as the duel wants it."""
    results = Results()
    timings = {
        "Google ADK append_event": Timing([[0.03, 0.03]]),
        "DjangoSessionService": Timing([[0.01, 0.01]]),
    }
    what = "ADK append_event, 4 KB of state"
    results.add_timings("adapters", what, timings, "DjangoSessionService")
    [target] = [target for target in targets(results, QUICK) if what in target.what]
    assert (target.limit, target.at_least, target.verdict) == (2, True, "reached")
    assert target.measured == pytest.approx(3)


@pytest.mark.urls("bench.http_urls")
@pytest.mark.django_db(transaction=True)
def test_the_user_of_the_http_benchmark_may_do_all_that_is_measured(live_server: Any) -> None:
    client = bench_http.Client(live_server.thread.port, prepare(sessions=3, threads=1), 0)
    for operation in bench_http.OPERATIONS.values():
        client.know_version()
        operation(client)
        operation(client)
