"""The page that shows a session live, in a real browser."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connections
from django.test import Client

from helix_sessions.store import SessionStore
from tests.servers import Server, http_server

sync_api = pytest.importorskip("playwright.sync_api")

T = TypeVar("T")

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = "<img src=x onerror='window.hurt = 1'><script>window.hurt = 1</script>\n&amp; done"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(CHROMIUM is None, reason="No Chromium was found."),
]


@contextmanager
def database_thread() -> Iterator[Callable[[Callable[[], T]], T]]:
    """The browser's driver has an event loop in this thread, where Django refuses to work."""
    with ThreadPoolExecutor(1) as pool:

        def call(function: Callable[[], T]) -> T:
            return pool.submit(function).result(60)

        try:
            yield call
        finally:
            pool.submit(connections.close_all).result()


@contextmanager
def browser(server: Server, cookie: str) -> Iterator[Any]:
    """A page of a browser that is logged in."""
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGUMENTS)
        try:
            context = chromium.new_context()
            login = {"name": settings.SESSION_COOKIE_NAME, "value": cookie, "url": server.url}
            context.add_cookies([login])
            page = context.new_page()
            page.set_default_timeout(30_000)
            yield page
        finally:
            chromium.close()


def login(user: Any) -> str:
    client = Client()
    client.force_login(user)
    return client.cookies[settings.SESSION_COOKIE_NAME].value


def shown(page: Any) -> list[int]:
    numbers = page.eval_on_selector_all("#log li", "items => items.map(item => Number(item.dataset.seq))")
    return list(numbers)


def wait_for(page: Any, seq: int) -> None:
    page.wait_for_selector(f"#log li[data-seq='{seq}']", state="attached")


def test_the_page_survives_a_restart_of_the_server_in_mid_run(store: SessionStore) -> None:
    user = get_user_model()._default_manager.create_user("watcher")
    store.create_session("s", agent_type="a", owner=user)
    store.create_run("s", run_id="r")
    cookie = login(user)

    def say(*texts: str) -> int:
        return store.append_messages("s", [{"role": "assistant", "content": text} for text in texts]).head_seq

    with database_thread() as work, http_server() as server, browser(server, cookie) as page:
        head = work(lambda: say("before", HOSTILE))
        page.goto(f"{server.url}/watch/s/")
        wait_for(page, head)
        page.wait_for_selector("#state[data-state=live]")

        head = work(lambda: say(*[f"live {n}" for n in range(20)]))
        wait_for(page, head)
        work(lambda: store.publish_fragment("s", {"text": "typing…"}))

        server.kill()
        page.wait_for_selector("#state[data-state=reconnecting]")
        head = work(lambda: say(*[f"while it was down {n}" for n in range(20)]))
        server.start()
        wait_for(page, head)
        page.wait_for_selector("#state[data-state=live]")

        work(lambda: say("after"))
        head = work(lambda: store.update_run_status("s", "r", "completed").end_sequence) or 0
        wait_for(page, head)
        assert shown(page) == list(range(1, head + 1))
        texts = page.eval_on_selector_all("#log .message pre", "items => items.map(item => item.textContent)")
        assert texts == [message["content"] for message in work(lambda: store.get_messages("s")).messages]
        assert page.evaluate("window.hurt") is None

        page.reload()
        wait_for(page, head)
        assert shown(page) == list(range(1, head + 1))

        work(lambda: store.delete_session("s"))
        page.wait_for_selector("#state[data-state=closed]")


def test_fragments_are_shown_until_their_message_comes(store: SessionStore) -> None:
    user = get_user_model()._default_manager.create_user("watcher")
    store.create_session("s", agent_type="a", owner=user)
    cookie = login(user)

    with database_thread() as work, http_server() as server, browser(server, cookie) as page:
        if work(lambda: connections["default"].vendor) != "postgresql":
            pytest.skip("Between processes fragments go through PostgreSQL.")
        page.goto(f"{server.url}/watch/s/")
        page.wait_for_selector("#state[data-state=live]")
        work(lambda: store.emit_event("s", "warm_up"))
        wait_for(page, 2)
        for piece in ("Hel", "lo <b>"):
            work(partial(store.publish_fragment, "s", {"text": piece}))
        page.wait_for_function("document.querySelector('#live').textContent === 'Hello <b>'")
        work(lambda: store.append_messages("s", [{"role": "assistant", "content": "Hello <b>"}]))
        wait_for(page, 3)
        assert page.text_content("#live") == ""


def test_only_who_may_read_the_session_gets_the_page(store: SessionStore, client: Client) -> None:
    store.create_session("s", agent_type="a")
    assert client.get("/watch/s/").status_code == 302
    client.force_login(get_user_model()._default_manager.create_user("stranger"))
    assert client.get("/watch/s/").status_code == 404
    assert b">s<" not in client.get("/watch/").content
