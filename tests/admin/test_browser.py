"""An operator at work, in a real browser under a strict Content-Security-Policy.

The screenshots are kept in `var/screenshots/`, in light and dark, wide and narrow.
"""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.conf import settings
from django.db import connections
from django.test import Client
from django.utils import timezone

from helix_sessions.admin import dashboard
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from tests.admin.places import APP, LIST, WAITING, make_busy_session, make_stuck, page_of

sync_api = pytest.importorskip("playwright.sync_api")

T = TypeVar("T")
InDatabase = Callable[[Callable[[], T]], T]

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
POLICY = "default-src 'self'"
SCREENSHOTS = Path(settings.BASE_DIR) / "var" / "screenshots"
HOSTILE = "<img src=x onerror='window.hurt = 1'><script>window.hurt = 1</script>"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(CHROMIUM is None, reason="No Chromium was found."),
]


@pytest.fixture
def in_database() -> Iterator[InDatabase[Any]]:
    """The browser's driver has an event loop in this thread, where Django refuses to work."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda function: pool.submit(function).result(60)
        pool.submit(connections.close_all).result()


class Browser:
    """Pages that an operator who is logged in opens; refusals of the policy are remembered."""

    def __init__(self, chromium: Any, address: str, cookie: str) -> None:
        self._chromium = chromium
        self._address = address
        self._cookie = {"name": settings.SESSION_COOKIE_NAME, "value": cookie, "url": address}
        self.complaints: list[str] = []

    def open(self, path: str, *, width: int = 1280, scheme: Any = "light", javascript: bool = True) -> Any:
        context = self._chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=javascript
        )
        context.add_cookies([self._cookie])
        context.route("**/*", self._with_policy)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda message: self._hear(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(self._address + path)
        return page

    def _with_policy(self, route: Any) -> None:
        if not route.request.is_navigation_request():
            route.continue_()
            return
        response = route.fetch(max_redirects=0)
        headers = {**response.headers, "content-security-policy": POLICY}
        route.fulfill(response=response, headers=headers)

    def _hear(self, text: str) -> None:
        if "Content Security Policy" in text:
            self.complaints.append(text)


@pytest.fixture
def browser(live_server: Any, admin_user: Any, store: SessionStore) -> Iterator[Browser]:
    make_busy_session(store, "parcel-desk-17")
    store.append_messages("parcel-desk-17", [{"role": "user", "content": HOSTILE}])
    make_stuck("parcel-desk-17")
    for number in range(12):
        store.create_session(f"idle-{number:02}", agent_type="night-watch", user_id=f"customer-{number}")
        store.append_messages(f"idle-{number:02}", [{"role": "user", "content": "Is anybody there?"}])
    store.update_status("idle-11", "failed", failure_reason="budget spent")
    then = timezone.now() - timedelta(days=2)
    Session.objects.filter(session_id="idle-11").update(created_at=then, status_since=then)
    make_waiting(store)
    client = Client()
    client.force_login(admin_user)
    cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGUMENTS)
        try:
            yield Browser(chromium, live_server.url, cookie)
        finally:
            chromium.close()


def make_waiting(store: SessionStore) -> None:
    """Sessions that wait: for approvals, a client, and a sub-session."""
    for number in range(3):
        key = f"refund-desk-{number}"
        store.begin_turn(key, message="Pay the money back.", agent_type="refunds", run_id="r")
        asked: list[dict[str, Any]] = [
            {
                "tool_call_id": "call_pay",
                "tool_name": "pay_back",
                "arguments": {"amount": 20 + number, "currency": "EUR", "note": HOSTILE},
                "kind": "approval",
                "deadline": timezone.now() + timedelta(hours=3 * number - 1),
            },
            {"tool_call_id": "call_read", "tool_name": "read_clipboard", "arguments": {}},
        ]
        store.suspend(
            key, "client_tool", state=store.load_state(key), run_id="r", pending_calls=asked[: number + 1]
        )
    store.create_session("refund-desk-2/research", agent_type="research", parent_session_id="refund-desk-2")
    store.begin_turn("editor", agent_type="editor", run_id="r")
    wait = {"parent_tool_call_id": "c", "sub_session_id": "refund-desk-2/research", "agent_type": "research"}
    state = store.load_state("editor")
    store.suspend("editor", "awaiting_children", state=state, run_id="r", awaiting_children=[wait])


def make_answered(store: SessionStore) -> None:
    """A session whose approval was edited, and who answered is to be seen."""
    operator = {"kind": "operator", "id": "1"}
    edited = {"amount": 15, "currency": "EUR", "note": HOSTILE}
    answer: dict[str, Any] = {"approved": True, "arguments": edited, "remember": "session", "by": operator}
    store.submit_tool_result("refund-desk-2", "call_pay", **answer)


def shot(page: Any, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


def test_a_shift(browser: Browser, store: SessionStore, in_database: InDatabase[Any]):
    page = browser.open(APP)
    shot(page, "1-dashboard")

    # Find the stuck session, and read why.
    page.click("a.hx-number.hx-is-stuck")
    page.wait_for_selector("#result_list tbody tr")
    assert page.locator("#result_list tbody tr").count() == 1
    shot(page, "2-stuck")
    page.click("text=parcel-desk-17")
    assert "has given no sign for" in page.inner_text(".hx-headline")
    assert page.evaluate("window.hurt") is None
    shot(page, "3-why")

    # Interrupt it.
    page.click(".hx-actions >> text=Interrupt")
    assert "1 session will be asked to stop." in page.inner_text("form.hx-confirm")
    page.fill("#id_reason", "The customer has the parcel.")
    shot(page, "4-interrupt")
    page.click("button.hx-primary")
    assert "1 session was asked to stop." in page.inner_text(".messagelist")
    assert "The customer has the parcel." in page.inner_text(".hx-remarks")
    request = in_database(lambda: store.peek_interrupt_flag("parcel-desk-17"))
    assert request.reason == "The customer has the parcel."

    # Expire ten.
    page.goto(page.url.split("/admin/")[0] + LIST + "?q=idle-0")
    page.check("#action-toggle")
    page.select_option("select[name=action]", "expire")
    page.click("#changelist-form button[name=index]")
    assert "10 sessions will expire now." in page.inner_text("form.hx-confirm")
    page.fill("#id_reason", "Nobody came back.")
    shot(page, "5-expire")
    page.click("button.hx-primary")
    assert "10 sessions have expired." in page.inner_text(".messagelist")
    assert in_database(lambda: Session.objects.filter(failure_reason="session_expired").count()) == 10

    # See the log.
    page.goto(page.url.split("/admin/")[0] + page_of("idle-03", "log"))
    assert "Nobody came back." in page.inner_text(".hx-panel")
    page.click(".hx-tabs >> text=Timeline")
    assert "Nobody came back." in page.inner_text("#hx-timeline")
    shot(page, "6-log")
    assert browser.complaints == []


def test_watching_one_live(browser: Browser, store: SessionStore, in_database: InDatabase[Any]):
    page = browser.open(page_of("idle-05"))
    page.click("#hx-live")
    assert page.get_attribute("#hx-live", "aria-pressed") == "true"
    for text in ("I am here now.", HOSTILE, "Good night."):
        message = {"role": "assistant", "content": text}
        in_database(partial(store.append_messages, "idle-05", [message]))
    page.wait_for_selector("text=Good night.")
    in_database(lambda: store.update_status("idle-05", "completed"))
    page.wait_for_selector("#hx-head .hx-is-completed")
    seqs = page.eval_on_selector_all("#hx-timeline > li[id]", "items => items.map(item => item.id)")
    head = in_database(lambda: store.load_state("idle-05").head_seq)
    assert seqs == [f"seq-{number}" for number in range(head, 0, -1)]
    assert page.evaluate("window.hurt") is None
    shot(page, "7-live")
    page.click("#hx-live")
    assert page.get_attribute("#hx-live", "aria-pressed") == "false"
    assert browser.complaints == []


def test_keyboard(browser: Browser):
    page = browser.open(page_of("parcel-desk-17"))
    page.focus("#hx-live")
    page.keyboard.press("Enter")
    assert page.get_attribute("#hx-live", "aria-pressed") == "true"
    page.focus("details.hx-doc summary >> nth=0")
    page.keyboard.press("Enter")
    assert page.locator("details.hx-doc >> nth=0").get_attribute("open") is not None


def test_answering_what_waits(browser: Browser, store: SessionStore, in_database: InDatabase[Any]):
    page = browser.open(APP)
    page.click("text=Everything that waits")
    page.wait_for_selector(".hx-waiting")
    assert page.locator(".hx-waiting > tbody").count() == 4
    assert page.evaluate("window.hurt") is None
    page.click(".hx-waiting > tbody >> nth=1 >> text=Approve")
    assert '"amount": 21' in page.inner_text("form.hx-confirm")
    page.fill("#id_arguments", page.input_value("#id_arguments").replace("21", "15"))
    page.select_option("#id_remember", "session")
    page.fill("#id_reason", "The parcel came back.")
    shot(page, "8-approve")
    page.click("button.hx-primary")
    assert "The call was approved." in page.inner_text(".messagelist")
    calls = in_database(lambda: store.load_state("refund-desk-1").pending_client_tool_calls)
    approved = calls["call_pay"]["response"]
    assert (approved["approved"], approved["reason"]) == (True, "The parcel came back.")
    assert approved["arguments"] == {**calls["call_pay"]["arguments"], "amount": 15}
    [rule] = in_database(store.list_tool_rules)
    assert (rule.session_id, rule.tool, rule.decision) == ("refund-desk-1", "pay_back", "allow")
    page.click(".hx-waiting > tbody >> nth=1 >> text=Answer")
    page.fill("#id_result", '{"text": "Z-9"}')
    page.fill("#id_reason", "Read out on the telephone.")
    page.click("button.hx-primary")
    assert "The call was answered." in page.inner_text(".messagelist")
    assert page.locator(".hx-waiting > tbody").count() == 3
    calls = in_database(lambda: store.load_state("refund-desk-1").pending_client_tool_calls)
    assert calls["call_read"]["response"] == {"result": {"text": "Z-9"}}
    assert page.evaluate("window.hurt") is None
    assert browser.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_looks(
    engine: str,
    browser: Browser,
    store: SessionStore,
    in_database: InDatabase[Any],
    width: int,
    scheme: str,
):
    if engine == "postgresql":
        pytest.skip("looks the same on both")
    places = {"dashboard": APP, "list": LIST, "confirm": f"{LIST}action/fail/?id=parcel-desk-17&id=idle-11"}
    pages = ("timeline", "state", "runs", "tree", "staging", "calls", "log")
    places |= {name: page_of("parcel-desk-17", name) for name in pages}
    places["waiting"] = WAITING
    places["waiting-calls"] = page_of("refund-desk-1", "calls")
    in_database(lambda: make_answered(store))
    places["answered-calls"] = page_of("refund-desk-2", "calls")
    places["answered-timeline"] = page_of("refund-desk-2")
    places["waiting-answer"] = f"{LIST}action/approve_call/?id=refund-desk-1&call=call_pay"
    page = browser.open(APP, width=width, scheme=scheme)
    for name, address in places.items():
        page.goto(page.url.split("/admin/")[0] + address)
        wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wider <= 0, f"{name} scrolls sideways"
        shot(page, f"{name}-{width}-{scheme}")
    assert browser.complaints == []


def test_finding_sessions_by_keyboard(browser: Browser):
    page = browser.open(page_of("parcel-desk-17", "runs"))
    page.keyboard.press("/")
    page.keyboard.type("idle-1")
    page.keyboard.press("Enter")
    page.wait_for_selector(".hx-applied")
    assert page.locator("#result_list tbody tr").count() == 2
    page.select_option("select[name=status]", "failed")
    page.wait_for_selector(".hx-applied li:nth-child(3)")
    assert page.locator("#result_list tbody tr").count() == 1
    assert "budget spent" in page.inner_text("#result_list")
    page.click(".hx-views summary")
    page.fill(".hx-views input[name=name]", "Spent")
    page.keyboard.press("Enter")
    page.wait_for_selector(".hx-view[aria-current] >> text=Spent")
    page.click(".hx-applied >> text=status")
    page.wait_for_selector(".hx-applied li >> nth=0")
    assert page.locator("#result_list tbody tr").count() == 2
    shot(page, "9-found")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "searchbar"
    assert browser.complaints == []


def test_without_javascript(browser: Browser):
    page = browser.open(LIST, javascript=False)
    page.select_option("select[name=status]", "failed")
    page.click("#hx-filters button")
    assert page.locator("#result_list tbody tr").count() == 1
    page.goto(page.url.split("/admin/")[0] + page_of("parcel-desk-17"))
    assert not page.is_visible("#hx-live")


def test_the_reason_has_the_focus(browser: Browser):
    page = browser.open(f"{LIST}action/interrupt/?id=parcel-desk-17")
    assert page.evaluate("document.activeElement.name") == "reason"


def until(page: Any, condition: str) -> None:
    """As `wait_for_function`, which the policy of the page refuses."""
    for _ in range(300):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(100)
    raise AssertionError(condition)


def test_now_renews_itself_without_losing_the_place(
    browser: Browser, store: SessionStore, in_database: InDatabase[Any]
):
    page = browser.open(APP)
    page.evaluate("window.scrollTo(0, 300)")
    page.focus(".hx-cause[data-key='stuck'] .hx-cause-do a >> nth=0")
    page.evaluate("""() => {
        window.kept = document.querySelector(".hx-cause[data-key='stuck']");
        window.place = window.kept.getBoundingClientRect().top;
    }""")
    for number in range(3):  # causes that come before and after it
        key = f"late-{number}"
        in_database(partial(store.create_session, key, agent_type=key))
        error = {"code": "x", "message": f"Another error {'abc'[number]}"}
        in_database(partial(store.compare_and_set_status, key, ["active"], "failed", error=error))
    page.wait_for_selector("text=Another error c")
    assert page.evaluate("document.activeElement.closest('.hx-cause') === window.kept")
    assert abs(page.evaluate("window.kept.getBoundingClientRect().top - window.place")) < 2
    # An element that is put elsewhere keeps the focus as well.
    page.evaluate("""() => {
        const list = window.kept.parentElement;
        list.append(window.kept);
        window.kept.querySelector("a").focus({preventScroll: true});
    }""")
    until(page, "window.kept.nextElementSibling !== null")
    assert page.evaluate("document.activeElement.closest('.hx-cause') === window.kept")
    assert browser.complaints == []


def test_the_numbers_below_renew_themselves(
    browser: Browser, store: SessionStore, in_database: InDatabase[Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dashboard, "KEPT_SECONDS", 1)
    page = browser.open(APP)
    total = int(page.inner_text(".hx-total a"))
    in_database(lambda: store.create_session("one-more", agent_type="late"))
    until(page, f"document.querySelector('.hx-total a').textContent === '{total + 1}'")
    assert browser.complaints == []


def test_what_was_unfolded_stays_so(browser: Browser, store: SessionStore, in_database: InDatabase[Any]):
    page = browser.open(page_of("idle-05"))
    page.click("#hx-live")
    page.click("details.hx-doc summary >> nth=0")
    message = {"role": "assistant", "content": "I am here now."}
    in_database(partial(store.append_messages, "idle-05", [message]))
    page.wait_for_selector("text=I am here now.")
    assert page.locator("details.hx-doc[open]").count() == 1


def test_nothing_moves_for_those_who_want_it_so(browser: Browser):
    page = browser.open(APP)
    page.emulate_media(reduced_motion="reduce")
    moving = "[...document.querySelectorAll('.hx *, .hx-nav *')].flatMap(e => e.getAnimations()).length"
    assert page.evaluate(moving) == 0
