"""Stored script in every text field, against every page of the admin and the demo, in a real browser.

A page fails if anything runs, opens a dialog, calls out, or makes the Content-Security-Policy step in.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote as url_quote

import pytest
from django.conf import settings
from django.contrib.admin.utils import quote
from django.test import Client
from django.utils import timezone

from helix_sessions.api.ids import to_segment
from helix_sessions.store import SessionStore
from helix_sessions.types import PendingCall
from tests.admin.places import ACTIONS, APP, LIST, PAGES, action, page_of
from tests.admin.test_browser import ARGUMENTS, CHROMIUM, Browser

sync_api = pytest.importorskip("playwright.sync_api")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(CHROMIUM is None, reason="No Chromium was found."),
]

PAYLOADS = (
    "\"'><img src=x onerror=window.hurt=1><script>window.hurt=1;alert(1)</script>",
    "</script></title></textarea><svg/onload=window.hurt=1>",
    "javascript:window.hurt=1//%0aalert(1)",
    "{{constructor.constructor('window.hurt=1')()}}${window.hurt=1}<!--",
)
CALLS_OUT = "<link rel=stylesheet href=//evil.example/x><iframe src=//evil.example></iframe>"


def plant(store: SessionStore, owner: Any, number: int, payload: str) -> str:
    """A session whose every text is the payload; what must be unique has a number before it."""
    text = payload + CALLS_OUT
    short = f"{number}{payload}"
    key = store.create_session(
        f"{number} {payload}",
        agent_type=short,
        user_id=short,
        stream_id=short,
        owner=owner,
        tags=[short],
        metadata={short: text, "nested": {short: [text]}},
        custom_state={short: {short: text}, "list": [text]},
        tracing_context={short: text},
        expires_at=timezone.now() - timedelta(days=1),
    ).session_id
    store.create_session(f"{number} child {payload}", agent_type=short, parent_session_id=key, owner=owner)
    run = store.begin_turn(key, message=text).run
    call = {"id": short, "name": short, "arguments": {short: text}}
    store.append_messages(
        key,
        [
            {
                "role": "assistant",
                "content": [{"type": "text", "text": text}],
                "tool_calls": [call],
                short: text,
            },
            {"role": "tool", "tool_call_id": short, "tool_name": short, "content": {short: text}},
            {"role": "system", "content": text},
        ],
    )
    for kind in (short, "tool_called", "tool_responded", "tool_error", "llm_error", "error", "compacted"):
        store.emit_event(
            key,
            kind,
            {
                "tool_call_id": short,
                "tool_name": short,
                "error": text,
                "result": text,
                "text": text,
                short: text,
            },
            turn_id=short,
        )
    store.stage_changes(key, short, short, [{"op": "set", "path": [short], "value": text}])
    store.create_checkpoint(key, {"checkpoint_id": short, "step_id": short, "metadata": {short: text}})
    store.merge_custom_state(key, [{"op": "set", "path": ["after", short], "value": text}])
    store.create_checkpoint(key, {"checkpoint_id": f"second {short}"})
    store.add_sub_session_refs(
        key,
        [{"sub_session_id": f"{number} child {payload}", "agent_type": short, "parent_tool_call_id": short}],
    )
    store.update_sub_session_ref(key, f"{number} child {payload}", result={short: text})
    state = replace(store.load_state(key), output={short: text}, error=text, interrupt_context={short: text})
    store.suspend(
        key,
        "client_tool",
        state=state,
        run_id=run.run_id,
        pending_calls=[
            PendingCall(tool_call_id=f"p{short}", tool_name=text, arguments={short: text}),
            PendingCall(tool_call_id=f"a{short}", tool_name=text, arguments={short: text}, kind="approval"),
        ],
        suspension_context={short: text},
    )
    store.set_interrupt_flag(key, text)
    store.update_status(key, "failed", error=text, failure_reason=text)
    store.create_run(key, metadata={short: text})
    store.update_run_status(key, store.get_current_run(key).run_id, "failed", error=text, output=text)  # type: ignore[union-attr]
    store.create_run(key)
    return key


@pytest.fixture
def planted(live_server: Any, admin_user: Any, store: SessionStore) -> Iterator[tuple[Browser, list[str]]]:
    keys = [plant(store, admin_user, number, payload) for number, payload in enumerate(PAYLOADS)]
    admin_user.first_name = PAYLOADS[0][:100]
    admin_user.save()
    client = Client()
    client.force_login(admin_user)
    for key in keys:  # the operators' own log holds what they typed
        client.post(action("interrupt"), {"ids": json.dumps([key]), "reason": PAYLOADS[0]})
    cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGUMENTS)
        try:
            yield Browser(chromium, live_server.url, cookie), keys
        finally:
            chromium.close()


def addresses(keys: list[str]) -> Iterator[str]:
    yield from (APP, LIST, f"{LIST}?q={url_quote(PAYLOADS[0])}", f"{LIST}?status=failed", "/", "/docs/")
    for key in keys:
        yield from (page_of(key, page) for page in PAGES)
        short = f"{keys.index(key)}{PAYLOADS[keys.index(key)]}"
        yield page_of(key, "state", f"?from={url_quote(short)}&to={url_quote('second ' + short)}")
        yield page_of(key, "timeline", "?order=oldest")
        yield f"{LIST}{url_quote(quote(key))}/live/?after=0"
        yield f"/chat/{url_quote(to_segment(key), '')}/"
    yield from (action(name, *keys) for name in ACTIONS)


@pytest.mark.timeout(300)
def test_nothing_runs_on_any_page(planted: tuple[Browser, list[str]]):
    browser, keys = planted
    found: list[str] = []
    page = browser.open(APP)

    def dismiss(dialog: Any) -> None:
        found.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def watch(request: Any) -> None:
        if "evil.example" in request.url:
            found.append(request.url)

    page.on("dialog", dismiss)
    page.on("request", watch)
    opened = 0
    for path in sorted(addresses(keys), key=lambda path: not path.startswith("/admin/")):
        answer = page.goto(browser._address + path, wait_until="load")
        assert answer is not None
        assert answer.status in (200, 302, 404), (path, answer.status)
        opened += answer.status == 200
        if path.startswith("/chat/"):
            page.wait_for_selector("#transcript .message")
        if page.evaluate("window.hurt"):
            found.append(f"script ran on {path}")
        if page.evaluate("document.querySelectorAll('iframe, img[src=x], svg[onload]').length"):
            found.append(f"markup of the payload on {path}")
        assert not found, path
        assert not browser.complaints, path
    assert opened > 50
