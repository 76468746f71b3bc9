"""Rows of one item: all are tried, each on what the fixtures made, and those that fail are named."""

from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection

from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from tests.invariants import dump
from tests.rows import MOST, each


def test_every_row_is_tried_and_those_that_fail_are_named() -> None:
    tried: list[int] = []

    @each("number", [1, 2, 3], ids=["one", "two", "three"])
    def test(number: int) -> None:
        tried.append(number)
        assert number == 2

    with pytest.raises(AssertionError, match=r"(?s)2 of 3 rows failed:.- one: .*1 == 2.*.- three: .*3 == 2"):
        test()
    assert tried == [1, 2, 3]


def test_one_row_that_fails_fails_as_it_would_alone() -> None:
    @each(("name", "number"), [("a", 1), ("b", 2)])
    def test(name: str, number: int) -> None:
        if number == 2:
            with pytest.raises(ValueError, match="never"):
                pass

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE") as caught:
        test()
    assert caught.value.__notes__ == ["row: b-2"]


def test_tables_are_multiplied_and_fixtures_are_given() -> None:
    tried: list[str] = []

    @each("letter", "ab", ids=str.upper)
    @each("number", [1, 2])
    def test(fixture: str, letter: str, number: int) -> None:
        tried.append(f"{fixture}{letter}{number}")

    test(fixture="x")
    assert tried == ["xa1", "xa2", "xb1", "xb2"]


def test_it_stops_when_everything_fails_or_the_time_is_over() -> None:
    tried: list[int] = []

    @each("number", range(1000))
    def broken(number: int) -> None:
        tried.append(number)
        raise ValueError(number)

    with pytest.raises(AssertionError, match=f"{MOST} of"):
        broken()
    assert len(tried) == MOST

    @each("number", range(1000))
    def slow(number: int) -> None:
        tried.append(number)
        pytest.fail("Timeout (>120.0s) from pytest-timeout.")

    tried.clear()
    with pytest.raises(pytest.fail.Exception, match="Timeout"):
        slow()
    assert tried == [0]


def test_no_rows_are_no_test() -> None:
    with pytest.raises(AssertionError, match="no rows"):
        each("number", [])(lambda number: None)()


@pytest.mark.django_db
def test_a_row_finds_what_the_fixtures_left(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    store.create_session("s", agent_type="a")
    settings.HELIX_SESSIONS = {"INBOX_LIMIT": 7}
    monkeypatch.setenv("HELIX_ROWS", "fixture")

    @each("number", [1, 2])
    def test(store: SessionStore, settings: Any, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        assert Session.objects.count() == 1
        assert django_settings.HELIX_SESSIONS == {"INBOX_LIMIT": 7}
        store.create_session("another", agent_type="a")
        store.append_messages("s", [{"role": "user"}])
        settings.HELIX_SESSIONS = {"INBOX_LIMIT": number}
        monkeypatch.setattr(Session, "ours", number, raising=False)

    test(store=store, settings=settings, monkeypatch=monkeypatch)
    assert store.load_state("s").message_count == 0
    assert not hasattr(Session, "ours")
    assert django_settings.HELIX_SESSIONS == {"INBOX_LIMIT": 7}


@pytest.mark.django_db
def test_a_row_whose_transaction_is_broken_breaks_no_other(store: SessionStore) -> None:
    @each("number", [1, 2, 3])
    def test(number: int) -> None:
        store.create_session("s", agent_type="a")
        if number == 1:
            with connection.cursor() as cursor:
                cursor.execute("SELECT * FROM nowhere")

    with pytest.raises(Exception, match="nowhere"):
        test()


@pytest.mark.django_db(transaction=True)
def test_so_does_a_row_of_a_test_that_commits(store: SessionStore) -> None:
    store.create_session("s", agent_type="a", custom_state={"a": ["\x00", 1.5, None]})
    before = dump()

    @each("number", [1, 2, 3])
    def test(number: int) -> None:
        assert dump() == before
        assert not connection.in_atomic_block
        store.create_session("another", agent_type="a")
        store.append_messages("s", [{"role": "user"}])

    test()
    assert dump() == before
    store.append_messages("s", [{"role": "user"}])
    assert store.load_state("s").message_count == 1
