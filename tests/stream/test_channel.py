"""NOTIFY and LISTEN: what other processes are told, and how this one lives through a lost connection."""

import os
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from django.db import connection

from helix_sessions.store import SessionStore
from helix_sessions.stream import channel as channels
from helix_sessions.stream.channel import Channel
from helix_sessions.stream.hub import hub
from helix_sessions.stream.packets import MAX_PAYLOAD, fragments_of
from helix_sessions.stream.sql import CHANNEL
from helix_sessions.types import Fragment
from tests.parallel import wait_until
from tests.stream.test_across_processes import emit, finish, listener_pids, listening, start
from tests.stream.test_subscribe import meanwhile

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("on_postgresql", "slow_polls", "channel"),
]


@pytest.fixture
def on_postgresql(engine: str) -> None:
    if engine != "postgresql":
        pytest.skip("SQLite has no NOTIFY.")


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Channel]:
    """This process's channel, not connected yet, and given up soon after it was used."""
    monkeypatch.setattr(channels, "_IDLE", 0.1)
    channel = hub._channel("default")
    wait_until(lambda: channel._thread is None)
    yield channel
    wait_until(lambda: channel._thread is None)


class Way:
    """The way to the database, as the channel takes it: it can be closed, and attempts are counted."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.attempts = 0
        self.pauses: list[float] = []
        self._open = threading.Event()
        self._open.set()
        self._lost = False
        connect = Channel._connect

        def counted(channel: Channel) -> Any:
            self.attempts += 1
            if self._lost:
                raise psycopg.OperationalError("There is no way.")
            assert self._open.wait(20)
            return connect(channel)

        def pause(seconds: float) -> None:
            self.pauses.append(seconds)
            time.sleep(0.001)

        patch.setattr(Channel, "_connect", counted)
        patch.setattr(channels, "sleep", pause)

    def hold(self) -> None:
        """Let who connects wait."""
        self._open.clear()

    def lose(self) -> None:
        """Let nobody connect."""
        self._lost = True

    def reopen(self) -> None:
        self._lost = False
        self._open.set()


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Iterator[Way]:
    way = Way(monkeypatch)
    yield way
    way.reopen()


class Other:
    """What another process hears."""

    def __init__(self) -> None:
        params = connection.get_connection_params()
        for ours in ("cursor_factory", "context", "prepare_threshold"):
            params.pop(ours, None)
        self._connection = psycopg.connect(**params, autocommit=True)
        self._connection.execute(f"LISTEN {CHANNEL}")

    def hear(self, count: int, timeout: float = 10) -> list[str]:
        """The next payloads; fewer when the time is over."""
        heard = self._connection.notifies(timeout=timeout, stop_after=count)
        return [notification.payload for notification in heard][:count]

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def other() -> Iterator[Other]:
    other = Other()
    yield other
    other.close()


@pytest.fixture(autouse=True)
def session(store: SessionStore, on_postgresql: None, channel: Channel) -> None:
    store.create_session("s", agent_type="a")
    wait_until(lambda: channel._thread is None)


def cut() -> None:
    with connection.cursor() as cursor:
        for pid in listener_pids():
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    wait_until(lambda: not listener_pids())


def test_own_fragments_come_once(store: SessionStore) -> None:
    with store.subscribe("s", fragments=True) as tail:
        wait_until(listening)
        store.publish_fragment("s", "own")
        assert next(tail).data == "own"
        finish(start(emit, 1, 1))

        assert next(tail).data == {"writer": 0, "n": 0}


def test_a_channel_that_is_given_up_leaves_no_file_open(store: SessionStore, channel: Channel) -> None:
    def open_files_after_use() -> int:
        store.emit_event("s", "ticked", 1)
        wait_until(lambda: channel._thread is None)
        return len(os.listdir("/proc/self/fd"))

    opened = [open_files_after_use() for _ in range(8)][2:]
    assert any(later <= before for before, later in pairwise(opened)), "others may open one meanwhile"


def test_pieces_that_do_not_follow_each_other_keep_their_places(way: Way, other: Other) -> None:
    places = [(0, 5), (1, 5), (3, 5), (4, 9), (6, 9)]
    way.hold()
    for index, after in places:
        hub.publish(
            "default", Fragment(session_id="s", data=index, after_seq=after, message_id="m", index=index)
        )
    way.reopen()

    heard = [fragment for payload in other.hear(4) for fragment in fragments_of(payload)]
    assert [(fragment.index, fragment.after_seq) for fragment in heard] == places
    assert [fragment.data for fragment in heard] == [index for index, _ in places]


def test_what_was_committed_before_it_listened_is_seen_when_it_does(store: SessionStore, way: Way) -> None:
    way.hold()
    with store.subscribe("s") as tail:
        assert tail.some(0) == []
        finish(start(emit, 1, 1))
        way.reopen()

        assert next(tail).seq == 2


def test_without_a_listening_connection_readers_poll_soon(
    store: SessionStore, way: Way, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, also those who were waiting when it was lost."""
    settings.HELIX_SESSIONS = {"STREAM_POLL_SECONDS": 0.05}
    monkeypatch.setattr("helix_sessions.stream.hub.SAFETY_POLL_SECONDS", 600.0)
    store.create_session("t", agent_type="a")
    with store.subscribe("s") as one, store.subscribe("t") as another:
        wait_until(listening)
        assert (one.some(0), another.some(0)) == ([], [])
        seen: list[int] = []
        with (
            meanwhile(lambda: seen.append(next(one).seq)),
            meanwhile(lambda: seen.append(next(another).seq)) as last,
        ):
            last.join(0.2)
            way.lose()
            cut()
            wait_until(lambda: not listening())
            with connection.cursor() as cursor:  # past the store, so that nobody is poked
                for key in ("s", "t"):
                    cursor.execute(
                        "INSERT INTO helix_sessions_event (session_id, seq, type, created_at)"
                        " VALUES (%s, 2, 'ticked', now())",
                        [key],
                    )
                cursor.execute("UPDATE helix_sessions_session SET head_seq = 2")
        assert seen == [2, 2]
        way.reopen()


def test_with_one_they_poll_seldom(
    store: SessionStore, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.HELIX_SESSIONS = {"STREAM_POLL_SECONDS": 0.05}
    monkeypatch.setattr("helix_sessions.stream.hub.SAFETY_POLL_SECONDS", 600.0)
    with store.subscribe("s"):
        wait_until(listening)
        assert hub.poll_interval("default") == 600.0
    wait_until(lambda: not listening())
    assert hub.poll_interval("default") == 0.05


def test_what_could_not_be_sent_is_sent_by_the_next_connection(
    store: SessionStore, other: Other, way: Way
) -> None:
    """Pokes, but no fragments, which would be late. Between two attempts passes ever more time."""
    with store.subscribe("s"):
        wait_until(listening)
        way.lose()
        cut()
        store.publish_fragment("s", "late")
        store.emit_event("s", "ticked", 1)
        wait_until(lambda: len(way.pauses) > 10)
        way.reopen()

        assert other.hear(1) == ["s"]
        assert way.pauses[:9] == [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 30.0]
        wait_until(listening)


def test_a_notification_that_fails_is_repeated(
    store: SessionStore, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost between two looks of its thread."""
    notify, failed = channels._notify, threading.Event()

    def lost(used: Any, payloads: list[str], *, prepared: bool) -> None:
        if not failed.is_set():
            failed.set()
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(%s)", [used.pgconn.backend_pid])
        notify(used, payloads, prepared=prepared)

    monkeypatch.setattr(channels, "_notify", lost)
    monkeypatch.setattr(channels, "sleep", lambda seconds: None)
    store.emit_event("s", "ticked", 1)

    assert other.hear(1) == ["s"]


def test_a_fragment_goes_out_before_the_event_it_preceded_and_whole(
    store: SessionStore, other: Other, way: Way
) -> None:
    way.hold()
    hard = 'back\\slash "quoted" {a,b} é\u2028'
    store.publish_fragment("s", hard)
    store.emit_event("s", "ticked", 1)
    way.reopen()

    fragment, poke = other.hear(2)
    assert poke == "s"
    assert fragments_of(fragment) == [Fragment(session_id="s", data=hard, after_seq=1)]


def test_a_payload_is_measured_in_bytes(store: SessionStore, other: Other, channel: Channel) -> None:
    store.publish_fragment("s", "é" * (MAX_PAYLOAD // 2))
    assert channel._thread is None, "it is too large to be sent"
    store.publish_fragment("s", "é" * (MAX_PAYLOAD // 3))

    assert len(other.hear(1)) == 1


def test_what_waits_to_be_sent_is_bounded(store: SessionStore, channel: Channel, way: Way) -> None:
    way.hold()
    for n in range(1_000):
        hub.publish("default", Fragment(session_id="s", data=n, after_seq=1))
    for n in range(10_100):
        hub.announce("default", f"s{n}", None)

    assert len(channel._fragments) == 500
    assert len(channel._sessions) == 10_000
    way.reopen()


def test_a_process_that_ends_announces_its_last_commit(other: Other) -> None:
    for _ in range(3):
        finish(start(emit, 1, 1))
        assert other.hear(1) == ["s"]


def test_what_came_while_it_sent_is_still_to_be_sent(
    store: SessionStore, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends at this moment waits for it."""
    notify, sending, may_send = channels._notify, threading.Event(), threading.Event()

    def interrupted(used: Any, payloads: list[str], *, prepared: bool) -> None:
        if payloads == ["s"]:
            hub.announce("default", "t", None)
        else:
            sending.set()
            may_send.wait(20)
        notify(used, payloads, prepared=prepared)

    monkeypatch.setattr(channels, "_notify", interrupted)
    store.emit_event("s", "ticked", 1)
    assert sending.wait(20)
    assert not channel._all_sent.is_set()
    may_send.set()
    assert channel._all_sent.wait(20)


def test_nothing_is_sent_where_notifications_are_off(
    store: SessionStore, channel: Channel, settings: Any
) -> None:
    settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, "STREAM_NOTIFY": False}
    with store.subscribe("s") as tail:
        store.emit_event("s", "ticked", 1)
        store.publish_fragment("s", "a")
        assert next(tail).data == 1
        assert channel._thread is None


def test_behind_a_transaction_pooling_proxy_it_sends_without_a_prepared_statement(
    store: SessionStore, other: Other, settings: Any
) -> None:
    settings.DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = True
    try:
        store.emit_event("s", "ticked", 1)
        assert other.hear(1) == ["s"]
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%%LISTEN%%' AND pid = ANY(%s)",
                [listener_pids()],
            )
            assert cursor.fetchall() == []
    finally:
        settings.DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = False


def test_a_thread_that_cannot_start_harms_no_writer_and_is_tried_again(
    store: SessionStore, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def none_left(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patch.setattr(threading.Thread, "start", none_left)
        assert store.emit_event("s", "ticked", 1).seq == 2
    store.emit_event("s", "ticked", 2)

    assert other.hear(1) == ["s"]


def test_a_forked_process_does_not_wait_for_what_its_parent_sends(
    store: SessionStore, channel: Channel, way: Way
) -> None:
    way.hold()
    store.emit_event("s", "ticked", 1)
    connection.close()
    child = os.fork()
    if child == 0:
        began = time.monotonic()
        channel._finish()
        os._exit(0 if time.monotonic() - began < 0.5 else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    way.reopen()


def test_pokes_that_follow_each_other_closely_go_together() -> None:
    """A poke that is alone is sent at once."""
    pace, now = channels._Pace(), 100.0
    for _ in range(100):
        assert pace.next <= now
        pace.sent(now)
        now += 0.05
    sent, until = 0, now + 1.0
    while now < until:
        pace.sent(now)
        now, sent = pace.next, sent + 1
    assert sent < 60
    now += 0.05
    pace.sent(now)
    assert pace.next - now < 0.01
