"""The base of maintenance jobs."""

import logging
from dataclasses import dataclass
from typing import Any

import pytest

from helix_sessions.exceptions import InvalidInput, SessionNotFound
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.store.maintenance.job import Job, ids_of, pages_of_ids


@dataclass(frozen=True)
class Done:
    items: int = 0
    errors: int = 0


def test_an_item_that_fails_is_counted_and_logged_and_stops_no_other(caplog: Any) -> None:
    job = Job(Done(), logging.getLogger("helix_sessions.test"))
    raised = {"b": ValueError("a secret"), "c": SessionNotFound("gone"), "d": InvalidInput("too long")}
    for item in job.over("abcde"):
        with job.attempt(f"Item {item} failed", ignore=SessionNotFound):
            if item in raised:
                raise raised[item]
            job.count(items=1)
    assert job.summary == Done(items=2, errors=2)
    assert not job.is_stopped
    logged = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert logged == ["Item b failed: ValueError", "Item d failed: too long (invalid_input)"]


def test_it_stops_before_an_item_and_reports_after_each() -> None:
    reported: list[Done] = []
    job = Job(Done(), on_progress=reported.append, should_stop=lambda: len(reported) == 2)
    for _ in job.over("abc"):
        job.count(items=1)
    assert job.summary == Done(items=2)
    assert reported == [Done(items=1), Done(items=2)]
    assert job.is_stopped


@pytest.mark.django_db
def test_pages_go_by_key_until_one_is_not_full(store: SessionStore, django_assert_num_queries: Any) -> None:
    for name in "abcd":
        store.create_session(name, agent_type="agent")
    rows = Session.objects.all()
    cases: list[tuple[int, str, list[list[str]]]] = [
        (3, "", [["a", "b", "c"], ["d"]]),
        (2, "", [["a", "b"], ["c", "d"], []]),
        (2, "b", [["c", "d"], []]),
        (9, "d", [[]]),
    ]
    for size, after, expected in cases:
        with django_assert_num_queries(len(expected)):
            assert list(pages_of_ids(rows, size, after)) == expected, (size, after)

    seen = []
    for name in ids_of(rows, 2):
        seen.append(name)
        store.delete_session(name)
    assert seen == ["a", "b", "c", "d"]
