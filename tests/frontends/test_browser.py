"""Pages with the real npm packages in a real browser, over uvicorn: everything that people do in a chat.

The pages are in `npm/`. What npm installs and esbuild makes of them is in a folder of its own.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from helix_sessions.runtime import TurnContext
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from tests.admin.test_browser import ARGUMENTS, CHROMIUM
from tests.frontends.conftest import Speaking
from tests.servers import Server, http_server

sync_api = pytest.importorskip("playwright.sync_api")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(CHROMIUM is None, reason="No Chromium was found."),
    pytest.mark.skipif(not (shutil.which("node") and shutil.which("npm")), reason="No npm was found."),
    pytest.mark.timeout(600),
]

Worker = Callable[..., None]
SOURCES = Path(__file__).parent / "npm"
OPTIONS = ("--bundle", "--format=esm", "--jsx=automatic", '--define:process.env.NODE_ENV="production"')
PREVIOUS = ("--alias:ai=ai-previous", "--alias:@ai-sdk/react=@ai-sdk/react-previous")
BUNDLES: dict[str, tuple[str, ...]] = {
    "chat": ("chat.jsx",),
    "chat-previous": ("chat.jsx", *PREVIOUS),
    "ag-ui": ("ag-ui.js",),
}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the bundle of each page."""
    folder = tmp_path_factory.mktemp("npm")
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
    quiet = ("--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
    installed = subprocess.run(["npm", "install", *quiet], cwd=folder, capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"npm cannot install: {installed.stderr[-500:]}")
    for name, words in BUNDLES.items():
        outfile = f"--outfile=bundles/{name}.js"
        subprocess.run(["node_modules/.bin/esbuild", *words, *OPTIONS, outfile], cwd=folder, check=True)
    return folder / "bundles"


class Site:
    """The web server, and a browser in which somebody is logged in."""

    def __init__(self, server: Server, context: Any) -> None:
        self.server = server
        self._context = context
        self.complaints: list[str] = []

    def open(self, name: str) -> Any:
        page = self._context.new_page()
        page.set_default_timeout(30_000)
        page.on("pageerror", self._hear)
        page.goto(f"{self.server.url}/pages/{name}/")
        return page

    def _hear(self, error: Any) -> None:
        if str(error) != "network error":  # of AG-UI's client, beside the rejection that the page handles
            self.complaints.append(str(error))


@pytest.fixture
def site(person: Any, session: str, bundles: Path) -> Iterator[Site]:
    client = Client()
    client.force_login(person)
    cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
    environment = {"DJANGO_SETTINGS_MODULE": "tests.frontends.settings", "HELIX_TEST_BUNDLES": str(bundles)}
    with http_server(**environment) as server, sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGUMENTS)
        try:
            context = chromium.new_context()
            context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": cookie, "url": server.url}])
            site = Site(server, context)
            yield site
            assert site.complaints == []
        finally:
            chromium.close()


def say(page: Any, text: str) -> None:
    page.fill("input", text)
    page.click('text="Send"')


def shows(page: Any, *said: str) -> None:
    """Wait until the page shows these messages, and nothing else."""
    script = """said => JSON.stringify([...document.querySelectorAll('article:has([data-text])')].map(
        message => [...message.querySelectorAll('[data-text]')].map(text => text.textContent).join('')
    )) === JSON.stringify(said)"""
    try:
        page.wait_for_function(script, arg=list(said))
    except sync_api.TimeoutError:
        raise AssertionError(page.inner_html("main")) from None


def rests(page: Any) -> None:
    page.wait_for_selector("main[data-status=ready]")


@pytest.mark.parametrize("name", ["chat", "chat-previous"])
def test_the_ai_sdk(name: str, site: Site, worker: Worker) -> None:
    words, lost, gone, stopped = (
        Speaking("Once up", "on ", "a time"),
        Speaking("One, ", "two, ", "three"),
        Speaking("Ready, ", "steady"),
        Speaking("Wait", " for", " it"),
    )
    script = [
        *(words.turn, lost.turn, gone.turn),
        *(
            calls("refund", cents=5),
            "Paid.",
            calls("refund", cents=6),
            "Not paid.",
            calls("refund", cents=9),
            "Paid less.",
            calls("locate"),
            "There.",
        ),
        *(stopped.turn, "Here it is.", calls("refund", cents=7), "Both saw it."),
    ]
    refunds: list[Any] = []

    def refund(given: Any, turn: TurnContext) -> str:
        refunds.append(given)
        return "paid back"

    worker(
        ScriptedAgent(
            _unique(script), tools={"refund": refund}, approval_tools=["refund"], client_tools=["locate"]
        )
    )
    page = site.open(name)

    # Sent, streamed, and reloaded in the middle of a word; another tab sees the same.
    say(page, "a story")
    words.go()
    shows(page, "a story", "Once up")
    page.reload()
    shows(page, "a story", "Once up")
    second = site.open(name)
    shows(second, "a story", "Once up")
    words.go()
    shows(page, "a story", "Once upon ")
    shows(second, "a story", "Once upon ")
    words.go(2)
    told = ["a story", "Once upon a time"]
    shows(page, *told)
    shows(second, *told)
    second.close()
    rests(page)

    # The connection is lost in the middle, and the answer goes on; or it has ended meanwhile.
    for speaking, prompt, part, rest, whole in (
        (lost, "count", "One, ", "One, two, ", "One, two, three"),
        (gone, "start", "Ready, ", None, "Ready, steady"),
    ):
        say(page, prompt)
        speaking.go()
        shows(page, *told, prompt, part)
        site.server.kill()
        if rest is None:
            speaking.go(2)
        site.server.start()
        if rest is not None:
            page.wait_for_selector("main[data-status=streaming]")
            speaking.go()
            shows(page, *told, prompt, rest)
            speaking.go(2)
        told += [prompt, whole]
        shows(page, *told)
        rests(page)

    # Approved, denied, changed, answered; each as well after a reload.
    for prompt, click, state, said in (
        ("pay", "Approve", "output-available", "Paid."),
        ("pay more", "Deny", "output-denied", "Not paid."),
        ("pay less", "Edit", "output-available", "Paid less."),
        ("where", "Locate", "output-available", "There."),
    ):
        say(page, prompt)
        page.wait_for_selector(f'text="{click}"')
        page.reload()
        page.click(f'text="{click}"')
        told += [prompt, said]
        shows(page, *told)
        rests(page)
        assert page.locator("[data-tool]").last.get_attribute("data-state") == state
        page.reload()
        shows(page, *told)
    assert refunds == [{"cents": 5}, {"cents": 1}]

    # Stopped, it keeps what was said; and it is said again.
    say(page, "now")
    stopped.go()
    shows(page, *told, "now", "Wait")
    page.click('text="Stop"')
    rests(page)
    page.reload()
    shows(page, *told, "now", "Wait")
    page.click('text="Again"')
    told += ["now", "Here it is."]
    shows(page, *told)
    rests(page)

    # Two tabs: both are asked, one answers, and the other is told what became of it.
    say(page, "pay the most")
    page.wait_for_selector('text="Approve"')
    second = site.open(name)
    second.wait_for_selector('text="Approve"')
    page.click('text="Approve"')
    told += ["pay the most", "Both saw it."]
    shows(page, *told)
    second.click('text="Deny"')
    shows(second, *told)
    rests(second)
    assert refunds == [{"cents": 5}, {"cents": 1}, {"cents": 7}]


def test_ag_ui(site: Site, worker: Worker) -> None:
    words, lost, stopped = (
        Speaking("Once up", "on ", "a time"),
        Speaking("One, ", "two, ", "three"),
        Speaking("Wait", " for", " it"),
    )
    script = [
        *(words.turn, lost.turn),
        *(
            calls("refund", cents=5),
            "Paid.",
            calls("refund", cents=6),
            "Not paid.",
            calls("refund", cents=9),
            "Paid less.",
            calls("locate"),
            "There.",
        ),
        *(stopped.turn, "Here it is.", calls("refund", cents=7), "Both saw it."),
    ]
    refunds: list[Any] = []

    def refund(given: Any, turn: TurnContext) -> str:
        refunds.append(given)
        return "paid back"

    worker(
        ScriptedAgent(
            _unique(script), tools={"refund": refund}, approval_tools=["refund"], client_tools=["locate"]
        )
    )
    page = site.open("ag-ui")
    rests(page)

    say(page, "a story")
    words.go()
    shows(page, "a story", "Once up")
    page.reload()
    shows(page, "a story", "Once up")
    second = site.open("ag-ui")
    shows(second, "a story", "Once up")
    words.go()
    shows(page, "a story", "Once upon ")
    shows(second, "a story", "Once upon ")
    words.go(2)
    told = ["a story", "Once upon a time"]
    shows(page, *told)
    shows(second, *told)
    second.close()
    rests(page)

    say(page, "count")
    lost.go()
    shows(page, *told, "count", "One, ")
    site.server.kill()
    page.wait_for_selector("main[data-status=lost]")
    site.server.start()
    page.wait_for_selector("main[data-status=streaming]")
    lost.go()
    shows(page, *told, "count", "One, two, ")
    lost.go(2)
    told += ["count", "One, two, three"]
    shows(page, *told)
    rests(page)

    for prompt, click, said in (
        ("pay", "Approve", "Paid."),
        ("pay more", "Deny", "Not paid."),
        ("pay less", "Edit", "Paid less."),
        ("where", "Locate", "There."),
    ):
        say(page, prompt)
        page.wait_for_selector(f'text="{click}"')
        page.reload()
        page.click(f'text="{click}"')
        told += [prompt, said]
        shows(page, *told)
        rests(page)
        page.reload()
        shows(page, *told)
        rests(page)
    assert refunds == [{"cents": 5}, {"cents": 1}]

    say(page, "now")
    stopped.go()
    shows(page, *told, "now", "Wait")
    page.click('text="Stop"')
    rests(page)
    page.reload()
    shows(page, *told, "now", "Wait")
    rests(page)
    page.click('text="Again"')
    told += ["now", "Here it is."]
    shows(page, *told)
    rests(page)

    say(page, "pay the most")
    page.wait_for_selector('text="Approve"')
    second = site.open("ag-ui")
    second.wait_for_selector('text="Approve"')
    page.click('text="Approve"')
    told += ["pay the most", "Both saw it."]
    shows(page, *told)
    second.click('text="Deny"')
    shows(second, *told)
    rests(second)
    assert refunds == [{"cents": 5}, {"cents": 1}, {"cents": 7}]


def _unique(script: list[Any]) -> list[Any]:
    """A model names no two calls alike."""
    for number, line in enumerate(script):
        if isinstance(line, dict):
            for call in line["tool_calls"]:
                call["id"] = f"call-{number}"
    return script
