"""Every page of the console under axe: the stock admin and django-unfold, light and dark, wide and narrow.

Needs Chromium and `axe-playwright-python`, which brings axe-core; django-unfold is tested where it is
installed. The screenshots are kept in `var/screenshots/`.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests.admin.places import ACTIONS, APP, AUDIT, LIST, PAGES, WAITING, action, page_of
from tests.admin.test_browser import ARGUMENTS, CHROMIUM, SCREENSHOTS

sync_api = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(CHROMIUM is None, reason="No Chromium was found."),
]

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
WIDTHS = (1280, 390)
NEEDS = {
    "resume": "failed-0",
    "retry": "failed-0",
    "change_model_and_retry": "failed-0",
    "approve_calls": "refund-desk-0",
    "deny_calls": "refund-desk-0",
}
"""The sessions on which these actions have something to do; the others are for the busy one."""
MODELS = ("alert", "instructions", "memory", "schedule", "spendlimit", "toolrule", "webhook")
PLACES = {
    "index": "/admin/",
    "now": APP,
    "now-hour": f"{LIST}now/?window=hour",
    "sessions": LIST,
    "sessions-filtered": f"{LIST}?status=failed&q=failed",
    "waiting": WAITING,
    "workers": f"{LIST}workers/",
    "audit": AUDIT,
    "bulk": f"{LIST}bulk/",
    "bulk-confirm": f"{LIST}action/retry/?filter=status%3Dfailed",
    "trace": page_of("s", "trace"),
    "waiting-calls": page_of("refund-desk-1", "calls"),
    "approve_call": f"{LIST}action/approve_call/?id=refund-desk-1&call=call_pay",
    "deny_call": f"{LIST}action/deny_call/?id=refund-desk-1&call=call_pay",
    "answer_call": f"{LIST}action/answer_call/?id=refund-desk-1&call=call_read",
    "webhookdelivery": f"{APP}webhookdelivery/",
    **{f"session-{name}": page_of("parcel-desk-17", name) for name in PAGES},
    **{f"action-{name}": action(name, NEEDS.get(name, "parcel-desk-17")) for name in ACTIONS},
    **{name: f"{APP}{name}/" for name in MODELS},
    **{f"{name}-add": f"{APP}{name}/add/" for name in MODELS if name != "memory"},
}
LEADS = {
    "bulk": f'a[href*="{LIST}bulk/"]',
    **dict.fromkeys((*MODELS, "audit"), '#result_list a[href*="/change/"]'),
}
"""On these pages a link leads to one more."""


@contextmanager
def gallery(theme: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A server of the console, and the cookie of an operator."""
    command = [sys.executable, "-m", "tests.admin.gallery", theme]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=settings.BASE_DIR)
    try:
        assert process.stdout is not None
        address, cookie = process.stdout.readline().split()
        yield address, {"name": settings.SESSION_COOKIE_NAME, "value": cookie, "url": address}
    finally:
        process.terminate()
        process.wait(30)


WITHOUT_EDGE = """() => {
    const other = '[type=hidden], [type=checkbox], [type=radio], [type=submit]';
    const field = `:is(input:not(${other}), select, textarea)`;
    const fields = document.querySelectorAll(`:is(.form-row, .hx-field) ${field}`);
    const isSeen = field => parseFloat(getComputedStyle(field).borderTopWidth) > 0;
    return [...fields].filter(field => field.offsetParent && !isSeen(field)).map(field => field.outerHTML);
}"""
"""Fields of a form that cannot be told from the page; axe has no rule for them."""


def findings_of(page: Any) -> Iterator[str]:
    """What axe finds, each with its place; fields without an edge; and whether the page scrolls sideways."""
    found = page.evaluate("rules => axe.run(document, {runOnly: rules, resultTypes: ['violations']})", RULES)
    for violation in found["violations"]:
        for node in violation["nodes"]:
            yield f"{violation['id']}: {node['target']} {node['html'][:160]}"
    for field in page.evaluate(WITHOUT_EDGE):
        yield f"no edge: {field[:160]}"
    if page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") > 0:
        yield "scrolls sideways"


def visit(chromium: Any, theme: str, scheme: Any, wrong: list[str]) -> None:
    source = (Path(axe.__file__).parent / "axe.min.js").read_text()
    with gallery(theme) as (address, cookie):
        context = chromium.new_context(color_scheme=scheme, reduced_motion="reduce")
        context.add_cookies([cookie])
        page = context.new_page()
        page.set_default_timeout(120_000)
        places = dict(PLACES)
        while places:
            name = next(iter(places))
            response = page.goto(address + places.pop(name))
            assert response.status == 200, name
            page.evaluate(source)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                where = f"{theme} {scheme} {width} {name}"
                wrong += [f"{where}: {finding}" for finding in findings_of(page)]
                SCREENSHOTS.mkdir(parents=True, exist_ok=True)
                page.screenshot(path=SCREENSHOTS / f"{theme}-{name}-{width}-{scheme}.png", full_page=True)
            if name in LEADS:
                link = page.locator(LEADS[name]).first
                if link.count():
                    places[f"{name}-one"] = link.get_attribute("href")


def test_axe_finds_nothing(engine: str):
    if engine == "postgresql":
        pytest.skip("looks the same on both")
    wrong: list[str] = []
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGUMENTS)
        try:
            for theme in ("plain", "unfold"):
                if theme == "plain" or find_spec("unfold"):
                    for scheme in ("light", "dark"):
                        visit(chromium, theme, scheme, wrong)
        finally:
            chromium.close()
    assert not wrong, "\n".join(wrong)
