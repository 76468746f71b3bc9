"""A visitor of the demo in a real browser: one web server, one worker, and what happens to both.

The processes are those of `make run`, on a database of their own. Screenshots are kept in `var/screenshots/`.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.admin.test_browser import ARGUMENTS, CHROMIUM, POLICY, SCREENSHOTS
from tests.parallel import ROOT

sync_api = pytest.importorskip("playwright.sync_api")
pytest.importorskip("pydantic_ai")

pytestmark = [
    pytest.mark.once,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="No Chromium was found."),
    pytest.mark.timeout(600),
]

REST = "#chat[data-busy=false] #status[data-kind=rest]"
STORY_BEGINS = "The lighthouse and the log book"
STORY_ENDS = "the keepers sleep very well."


class Demo:
    """`manage.py run_demo` in a group of processes of its own."""

    def __init__(self, database: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        bare = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        self._environment = bare | {
            "DJANGO_SETTINGS_MODULE": "project.settings",
            "DATABASE_URL": f"sqlite:///{database}",
            "HELIX_DEBUG": "1",
            "HELIX_DEMO_PACE": "1",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def manage(self, *arguments: str) -> None:
        command = [sys.executable, "manage.py", *arguments]
        subprocess.run(command, cwd=ROOT, env=self._environment, check=True, capture_output=True)

    def start(self) -> None:
        """Return when the page is there."""
        command = [sys.executable, "manage.py", "run_demo", "--port", str(self.port), "--lease", "3"]
        self._process = subprocess.Popen(command, cwd=ROOT, env=self._environment, start_new_session=True)
        _until(self._answers, "The demo does not answer.")

    def stop(self) -> int:
        """As Ctrl-C does; the status it ends with."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(30)

    def kill(self) -> None:
        """All of its processes, as a power cut would."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)

    def _answers(self) -> bool:
        try:
            with urlopen(self.url, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _until(is_so: Callable[[], bool], otherwise: str, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    demo = Demo(tmp_path_factory.mktemp("demo") / "demo.sqlite3")
    demo.manage("migrate", "--verbosity", "0")
    try:
        demo.start()
        yield demo
    finally:
        demo.kill()


class Visitor:
    """A browser at the demo, under a strict Content-Security-Policy; complaints are remembered."""

    def __init__(self, chromium: Any, demo: Demo) -> None:
        self._chromium = chromium
        self.demo = demo
        self.complaints: list[str] = []

    def arrive(self, *, width: int = 1280, scheme: Any = "light") -> Any:
        context = self._chromium.new_context(viewport={"width": width, "height": 860}, color_scheme=scheme)
        context.route("**/*", self._with_policy)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._hear)
        page.goto(self.demo.url)
        page.wait_for_selector("#chat[data-view=welcome]")
        return page

    def _with_policy(self, route: Any) -> None:
        if not route.request.is_navigation_request():
            route.continue_()
            return
        response = route.fetch(max_redirects=0)
        route.fulfill(response=response, headers={**response.headers, "content-security-policy": POLICY})

    def _hear(self, message: Any) -> None:
        if "Content Security Policy" in message.text:
            self.complaints.append(message.text)


@pytest.fixture
def visitor(demo: Demo) -> Iterator[Visitor]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGUMENTS)
        visitor = Visitor(chromium, demo)
        try:
            yield visitor
            assert visitor.complaints == []
        finally:
            chromium.close()


def ask(page: Any, agent: str, number: int = 0) -> None:
    page.locator(f"[data-agent={agent}][data-ask]").nth(number).click()


def write(page: Any, text: str) -> None:
    page.fill("#input", text)
    page.press("#input", "Enter")


def shown(page: Any) -> str:
    text: str = page.inner_text("#transcript")
    return text


def wait_for_text(page: Any, text: str) -> None:
    page.wait_for_function("text => document.querySelector('#transcript').innerText.includes(text)", arg=text)


def wait_for_growth(page: Any, length: int) -> None:
    """Until so much of an answer is there, and it is not over."""
    page.wait_for_function(
        "length => (document.querySelector('.answer')?.innerText.length ?? 0) > length", arg=length
    )
    assert STORY_ENDS not in shown(page)


def test_tools_have_cards_and_a_failed_call_is_mended(visitor: Visitor):
    page = visitor.arrive()
    ask(page, "shop-assistant")
    page.wait_for_selector(".tool[data-state=running]")
    page.wait_for_selector(REST)
    states = page.eval_on_selector_all(".tool", "cards => cards.map(card => card.dataset.state)")
    assert states == ["done", "failed", "done"]
    card = page.locator(".tool").first
    assert "ms" in card.locator(".state").inner_text()
    card.locator("summary").press("Enter")
    assert '"order": 1042' in card.inner_text()
    assert "Kettle" in card.inner_text()
    assert page.locator("#conversations a[aria-current]").count() == 1
    assert "on the road" in page.inner_text("#announcer")
    page.reload()
    page.wait_for_selector(REST)
    wait_for_text(page, "If it is not there by then")
    assert page.locator(".tool").count() == 3

    page.click("#in-admin")
    page.wait_for_load_state()
    assert page.title().startswith("01") or "Session" in page.title()
    assert "shop-assistant" in page.content()


@pytest.mark.parametrize(
    ("button", "state", "told"),
    [("button.primary", "done", "are refunded"), ("button.deny", "denied", "no money was paid back")],
)
def test_a_refund_waits_for_a_decision_and_survives_a_reload(
    visitor: Visitor, button: str, state: str, told: str
):
    page = visitor.arrive(width=390, scheme="dark")
    ask(page, "shop-assistant", 1)
    page.wait_for_selector(".approval")
    assert "are refunded" not in shown(page)
    page.reload()
    page.wait_for_selector("#status[data-kind=waiting]")
    page.locator(f".approval {button}").focus()
    page.keyboard.press("Enter")
    wait_for_text(page, told)
    page.wait_for_selector(REST)
    assert page.locator(".tool").last.get_attribute("data-state") == state
    page.reload()
    page.wait_for_selector(f".tool[data-state={state}]")
    assert page.locator(".approval").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_arguments_can_be_changed_in_place(visitor: Visitor):
    page = visitor.arrive()
    ask(page, "shop-assistant", 1)
    page.wait_for_selector(".approval")
    if not page.locator(".approval .edit").count():
        pytest.skip("The API takes no changed arguments.")
    page.click(".approval .edit")
    page.get_by_label("amount").fill("20")
    page.click(".approval button.primary")
    wait_for_text(page, "Done, as you changed it. 20.00 € of order 1042 are refunded")
    page.wait_for_selector(REST)
    page.reload()
    page.wait_for_selector(REST)
    assert "amount 20" in page.locator(".tool summary").last.inner_text()


def test_two_sub_agents_work_side_by_side(visitor: Visitor):
    page = visitor.arrive()
    ask(page, "research-desk")
    page.wait_for_function("() => document.querySelectorAll('.child[data-state=running]').length === 2")
    wait_for_text(page, "My advice")
    page.wait_for_selector(REST)
    assert page.locator(".child[data-state=done]").count() == 2
    page.locator(".child summary").last.click()
    page.wait_for_selector(".child[open] .steps li[data-state=done]")
    assert page.locator(".child").last.locator(".steps li").count() == 2


def test_a_reload_in_the_middle_shows_all_that_was_said(visitor: Visitor):
    page = visitor.arrive()
    ask(page, "storyteller")
    page.wait_for_selector("#status[data-kind=trouble]")  # the model fails once
    wait_for_growth(page, 150)
    page.reload()
    wait_for_growth(page, 150)
    wait_for_text(page, STORY_ENDS)
    page.wait_for_selector(REST)
    assert shown(page).count(STORY_BEGINS) == 1


def test_stop_keeps_what_was_said_and_one_can_write_on(visitor: Visitor):
    page = visitor.arrive()
    ask(page, "storyteller")
    wait_for_growth(page, 200)
    page.click("#stop")
    page.wait_for_selector(REST)
    assert STORY_BEGINS in shown(page)
    assert STORY_ENDS not in shown(page)
    page.reload()
    wait_for_text(page, STORY_BEGINS)
    write(page, "Again, please.")
    wait_for_text(page, STORY_ENDS)


def test_branches_are_made_and_switched(visitor: Visitor):
    page = visitor.arrive()
    ask(page, "shop-assistant")
    page.wait_for_selector(REST)
    wait_for_text(page, "If it is not there by then")
    page.locator(".prompt").hover()
    page.get_by_role("button", name="Edit and branch").click()
    page.get_by_label("Your message, changed").fill("Where is order 1043?")
    page.get_by_role("button", name="Send on a new branch").click()
    wait_for_text(page, "Bread knife")
    page.wait_for_selector(REST)
    assert page.inner_text(".switcher span") == "2 / 2"
    page.get_by_role("button", name="Previous branch").click()
    wait_for_text(page, "Kettle")
    assert page.inner_text(".switcher span") == "1 / 2"
    assert "Bread knife" not in shown(page)
    assert "2 branches" in page.inner_text("#conversations a[aria-current]")
    page.go_back()
    wait_for_text(page, "Bread knife")


def test_a_killed_worker_is_replaced_and_the_answer_goes_on(visitor: Visitor):
    page = visitor.arrive()
    ask(page, "storyteller")
    wait_for_growth(page, 200)
    page.click("#kill")
    page.wait_for_selector("#status[data-kind=trouble]")
    wait_for_text(page, STORY_ENDS)
    page.wait_for_selector(REST)
    assert shown(page).count(STORY_BEGINS) == 1
    page.reload()
    wait_for_text(page, STORY_ENDS)
    assert shown(page).count(STORY_BEGINS) == 1


def test_the_page_survives_the_end_of_everything(visitor: Visitor):
    page = visitor.arrive()
    ask(page, "storyteller")
    wait_for_growth(page, 200)
    visitor.demo.kill()
    page.wait_for_selector("#status[data-kind=lost]")
    visitor.demo.start()
    wait_for_text(page, STORY_ENDS)
    page.wait_for_selector(REST)
    assert shown(page).count(STORY_BEGINS) == 1


def test_two_pages_show_the_same(visitor: Visitor):
    page = visitor.arrive()
    ask(page, "shop-assistant", 1)
    page.wait_for_selector(".approval")
    other = page.context.new_page()
    other.goto(page.url)
    other.wait_for_selector(".approval")
    page.click(".approval button.primary")
    for each in (page, other):
        wait_for_text(each, "are refunded")
        each.wait_for_selector(REST)
        assert each.locator(".approval").count() == 0
    write(page, "Where is order 1044?")
    wait_for_text(other, "Cast iron pan")


def test_hostile_words_stay_words(visitor: Visitor):
    page = visitor.arrive()
    write(page, "<img src=x onerror='window.hurt = 1'> [x](javascript:hurt) **<b>1042</b>**")
    page.wait_for_selector(REST)
    wait_for_text(page, "<img src=x")
    assert page.evaluate("window.hurt") is None
    assert page.locator("#transcript img, #transcript a[href^=javascript]").count() == 0


def test_it_looks_well_everywhere(visitor: Visitor):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for width in (1280, 390):
        for scheme in ("light", "dark"):
            page = visitor.arrive(width=width, scheme=scheme)
            page.screenshot(path=SCREENSHOTS / f"chat-welcome-{width}-{scheme}.png")
            ask(page, "shop-assistant", 1)
            page.wait_for_selector(".approval")
            page.screenshot(path=SCREENSHOTS / f"chat-approval-{width}-{scheme}.png")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.context.close()


def test_ctrl_c_ends_all_of_it(demo: Demo):
    group = demo._process.pid if demo._process else 0
    assert demo.stop() == 0

    def is_empty() -> bool:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        return False

    _until(is_empty, "A process is left.", 20)
