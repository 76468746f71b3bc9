"""The event stream over HTTP."""

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import AsyncClient, Client
from django.urls import reverse

from helix_sessions.api import streams
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.stream import sse
from helix_sessions.stream.hub import hub
from tests.stream.frames import Parser, Reading

pytestmark = pytest.mark.django_db(transaction=True)

Run = Callable[[Callable[[], Awaitable[Any]]], Any]
STREAM = "/api/sessions/s/events/stream/"


@pytest.fixture
def user() -> Any:
    return get_user_model()._default_manager.create_user("reader", password="secret")


@pytest.fixture(autouse=True)
def session(store: SessionStore, user: Any) -> str:
    store.create_session("s", agent_type="a", owner=user)
    return "s"


@pytest.fixture
def client_of(user: Any) -> Callable[[], AsyncClient]:
    def client() -> AsyncClient:
        client = AsyncClient()
        client.force_login(user)
        return client

    return client


@pytest.fixture
def client(client_of: Callable[[], AsyncClient]) -> AsyncClient:
    return client_of()


async def opened(client: AsyncClient, query: str = "", **headers: str) -> Reading:
    response = await client.get(f"{STREAM}{query}", headers=headers)
    assert response.status_code == 200, response.content
    assert response["Content-Type"] == "text/event-stream"
    return Reading(response)


def test_the_address_is_part_of_the_api() -> None:
    assert reverse("helix_sessions:event-stream", args=["s"]) == STREAM


def test_a_frame_has_the_number_the_type_and_the_event(
    store: SessionStore, client: AsyncClient, run_async: Run
) -> None:
    store.append_messages("s", [{"role": "user", "content": "two\nlines\r\nand\u2028more"}])

    async def main() -> None:
        reading = await opened(client, "?after=0")
        first, second = await reading.take(2)
        await reading.close()
        assert (first.event, first.id) == ("session_started", "1")
        assert (second.event, second.id) == ("user_message", "2")
        assert second.data["data"] == {"role": "user", "content": "two\nlines\r\nand\u2028more"}
        assert second.data.keys() == {
            "session_id", "seq", "type", "data", "turn_id", "run_id", "created_at"
        }  # fmt: skip
        assert reading.parser.retry == 3000

    run_async(main)


def test_nothing_on_the_way_holds_it_back(client: AsyncClient, run_async: Run, settings: Any) -> None:
    """No cache, no proxy's buffer, no middleware that compresses."""
    settings.MIDDLEWARE = ["django.middleware.gzip.GZipMiddleware", *settings.MIDDLEWARE]

    async def main() -> None:
        response = await client.get(f"{STREAM}?after=0", headers={"Accept-Encoding": "gzip"})
        assert response["Cache-Control"] == "no-cache, no-transform"
        assert response["X-Accel-Buffering"] == "no"
        reading = Reading(response)
        assert (await reading.next()).id == "1"
        await reading.close()

    run_async(main)


def test_a_frame_is_one_line_whatever_the_spaces_between_its_tokens() -> None:
    frame = sse.numbered(7, '{"a":\r\n1,\r"b":\n2}')

    assert b"\r" not in frame
    [read] = Parser().feed(frame)
    assert (read.id, read.data) == ("7", {"a": 1, "b": 2})


def test_a_reader_that_comes_back_goes_on_where_it_was(
    astore: AsyncSessionStore, client: AsyncClient, run_async: Run
) -> None:
    async def main() -> None:
        for n in range(5):
            await astore.emit_event("s", "ticked", n)
        reading = await opened(client, "?after=0", **{"Last-Event-ID": "3"})
        assert [frame.id for frame in await reading.take(3)] == ["4", "5", "6"]
        await astore.emit_event("s", "ticked", 5)
        assert (await reading.next()).id == "7"
        await reading.close()

    run_async(main)


def test_without_a_place_it_starts_at_the_head(
    astore: AsyncSessionStore, client: AsyncClient, run_async: Run
) -> None:
    async def main() -> None:
        reading = await opened(client)
        await astore.emit_event("s", "ticked", 1)
        assert (await reading.next()).id == "2"
        await reading.close()

    run_async(main)


def test_only_events_of_some_types_and_the_place_past_the_others(
    astore: AsyncSessionStore, client: AsyncClient, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 0.05)

    async def main() -> None:
        reading = await opened(client, "?after=0&types=ticked&types=tocked")
        for kind in ("ticked", "other", "tocked", "other"):
            await astore.emit_event("s", kind, 1)
        assert [frame.event for frame in await reading.take(2)] == ["ticked", "tocked"]
        waiting = asyncio.create_task(reading.next())
        while reading.parser.last_id != "5":
            await asyncio.sleep(0.01)
        assert reading.parser.comments
        waiting.cancel()
        await asyncio.wait([waiting])
        await reading.close()

    run_async(main)


def test_unnamed_events_all_reach_one_handler(
    astore: AsyncSessionStore, client: AsyncClient, run_async: Run
) -> None:
    async def main() -> None:
        reading = await opened(client, "?after=0&named=false")
        first = await reading.next()
        assert (first.event, first.id, first.data["type"]) == ("message", "1", "session_started")
        await reading.close()

    run_async(main)


def test_a_run_is_followed_from_its_beginning_to_its_end(
    astore: AsyncSessionStore, client: AsyncClient, run_async: Run
) -> None:
    async def main() -> None:
        await astore.emit_event("s", "before", 1)
        await astore.create_run("s", run_id="r")
        await astore.emit_event("s", "inside", 1)
        live = await opened(client, "?run=r")
        assert [frame.event for frame in await live.take(2)] == ["run_started", "inside"]
        await astore.update_run_status("s", "r", "completed")
        await astore.emit_event("s", "behind", 1)
        for reading in (live, await opened(client, "?run=r&after=4")):
            finished, closed = await reading.rest()
            assert finished.event == "run_finished"
            assert (closed.event, closed.id, closed.data["reason"]) == ("stream_closed", None, "run_ended")
        over = await client.get(f"{STREAM}?run=r", headers={"Last-Event-ID": finished.id or ""})
        assert over.status_code == 204

    run_async(main)


def test_it_says_that_the_session_was_deleted(
    astore: AsyncSessionStore, client: AsyncClient, run_async: Run
) -> None:
    async def main() -> None:
        reading = await opened(client, "?after=1")
        await astore.delete_session("s")
        [closed] = await reading.rest()
        assert (closed.event, closed.data["reason"], closed.id) == ("stream_closed", "session_deleted", None)

    run_async(main)


def test_fragments_have_no_id_and_are_not_replayed(
    astore: AsyncSessionStore, client: AsyncClient, run_async: Run
) -> None:
    async def main() -> None:
        reading = await opened(client, "?after=0")
        await reading.next()
        await astore.publish_fragment("s", {"text": "Hel\nlo"})
        await astore.emit_event("s", "ticked", 1)
        fragment, event = await reading.take(2)
        assert (fragment.event, fragment.id) == ("fragment", None)
        assert fragment.data["data"] == {"text": "Hel\nlo"}
        assert fragment.data["after_seq"] == 1
        assert event.id == "2"
        again = await opened(client, "?after=0")
        assert [frame.event for frame in await again.take(2)] == ["session_started", "ticked"]
        await reading.close()
        await again.close()

    run_async(main)


def test_who_may_not_read_the_session_gets_no_stream(
    client: AsyncClient, run_async: Run, store: SessionStore
) -> None:
    store.create_session("other", agent_type="a")

    async def main() -> None:
        assert (await AsyncClient().get(STREAM)).status_code in (401, 403)
        for unknown in ("other", "nobody"):
            response = await client.get(f"/api/sessions/{unknown}/events/stream/")
            assert response.status_code == 404
            assert json.loads(response.content)["code"] == "session_not_found"

    run_async(main)


@pytest.mark.parametrize("query", ["?after=x", "?after=-1", "?after=9223372036854775808", "?unknown=1"])
def test_what_is_asked_for_wrongly_is_refused(client: AsyncClient, run_async: Run, query: str) -> None:
    async def main() -> None:
        assert (await client.get(f"{STREAM}{query}")).status_code == 400
        assert (await client.get(STREAM, headers={"Last-Event-ID": "x"})).status_code == 400
        assert (await client.get(f"{STREAM}?run=nobody")).status_code == 404
        assert (await client.post(STREAM)).status_code in (403, 405)

    run_async(main)


@pytest.mark.parametrize("loss", ["deactivated", "logged out", "password changed", "session given away"])
def test_who_loses_access_loses_the_stream(
    store: SessionStore,
    client: AsyncClient,
    user: Any,
    run_async: Run,
    monkeypatch: pytest.MonkeyPatch,
    loss: str,
) -> None:
    monkeypatch.setattr(streams, "RECHECK_SECONDS", 0.1)

    def lose() -> None:
        from django.contrib.sessions.models import Session as LoginSession
        from django.db import connection

        if loss == "deactivated":
            user.is_active = False
            user.save()
        elif loss == "logged out":
            LoginSession.objects.all().delete()
        elif loss == "password changed":
            user.set_password("another")
            user.save()
        else:
            with connection.cursor() as cursor:
                cursor.execute("UPDATE helix_sessions_session SET owner_id = NULL")

    async def main() -> None:
        from asgiref.sync import sync_to_async

        reading = await opened(client, "?after=1")
        waiting = asyncio.create_task(reading.rest())
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await sync_to_async(lose)()
        [closed] = await asyncio.wait_for(waiting, 10)
        assert closed.data["reason"] == "access_lost"

    run_async(main)


def test_a_user_has_so_many_streams_and_no_more(client: AsyncClient, run_async: Run, settings: Any) -> None:
    settings.HELIX_SESSIONS = {"STREAMS_PER_USER": 2}

    async def main() -> None:
        first, second = await opened(client, "?after=0"), await opened(client, "?after=0")
        await first.next()
        refused = await client.get(STREAM)
        assert refused.status_code == 429
        assert refused["Retry-After"] == "3"
        assert json.loads(refused.content)["code"] == "too_many_streams"
        await first.close()
        third = await opened(client, "?after=0")
        await third.next()
        await third.close()
        del second
        gc.collect()
        await asyncio.sleep(0)
        assert (await client.get(f"{STREAM}?wait=0")).status_code == 200

    run_async(main)


def test_a_reader_that_goes_away_leaves_nothing(client: AsyncClient, run_async: Run) -> None:
    async def main() -> None:
        reading = await opened(client, "?after=0")
        await reading.next()
        waiting = asyncio.create_task(reading.next())
        await asyncio.sleep(0.05)
        assert hub.watched("default") == 1
        waiting.cancel()
        await asyncio.wait([waiting])
        assert hub.watched("default") == 0

    run_async(main)


def test_a_long_poll_waits_for_the_first_event(
    astore: AsyncSessionStore, client: AsyncClient, run_async: Run
) -> None:
    async def main() -> None:
        polling = asyncio.create_task(client.get(f"{STREAM}?after=1&wait=20&types=ticked"))
        await asyncio.sleep(0.2)
        await astore.emit_event("s", "other", 1)
        await asyncio.sleep(0.2)
        assert not polling.done()
        await astore.emit_event("s", "ticked", 2)
        response = await polling
        assert [frame.id for frame in Parser().feed(response.content)] == ["3"]

    run_async(main)


def test_a_long_poll_in_json(client: AsyncClient, run_async: Run, store: SessionStore) -> None:
    store.emit_event("s", "ticked", {"n": 1})

    async def main() -> None:
        response = await client.get(f"{STREAM}?after=0&wait=5", headers={"Accept": "application/json"})
        body = json.loads(response.content)
        assert [event["type"] for event in body["items"]] == ["session_started", "ticked"]
        assert (body["after"], body["closed"]) == (2, False)
        empty = await client.get(f"{STREAM}?after=2&wait=0.05", headers={"Accept": "application/json"})
        assert json.loads(empty.content) == {"items": [], "after": 2, "closed": False}

    run_async(main)


def test_without_an_event_loop_the_same_address_is_a_long_poll(
    store: SessionStore, user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "WAIT_SECONDS", 0.2)
    client = Client()
    client.force_login(user)
    parser = Parser()

    first = client.get(f"{STREAM}?after=0")
    assert [frame.id for frame in parser.feed(first.content)] == ["1"]
    assert parser.retry == 100

    nothing = client.get(STREAM, headers={"Last-Event-ID": "1"})
    assert parser.feed(nothing.content) == []

    store.emit_event("s", "ticked", 1)
    assert [f.id for f in parser.feed(client.get(STREAM, headers={"Last-Event-ID": "1"}).content)] == ["2"]
