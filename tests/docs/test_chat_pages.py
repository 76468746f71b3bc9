"""The modules that the how-to shows whole are those that `tests/frontends/test_browser.py` runs."""

from tests.parallel import ROOT


def test_the_modules_of_the_pages_are_those_that_ran() -> None:
    page = (ROOT / "docs/how-to/chat-front-ends.md").read_text()
    for name in ("sessionChat.js", "SessionAgent.js"):
        source = (ROOT / "tests/frontends/npm" / name).read_text()
        assert f"`{name}`, whole:\n\n```js\n{source}```\n" in page, name
