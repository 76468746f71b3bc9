"""The page of the HTTP bodies has every method with examples, and is what the schema says."""

from copy import deepcopy

import pytest

from helix_sessions.api.serializers.events import StreamQuery
from tests.api.routes import every_method
from tests.docs.pages import page
from tools import http_reference


@pytest.fixture(scope="module")
def document():
    return http_reference.schema()


def test_every_body_has_an_example(document):
    assert not http_reference.missing(document), "\n".join(http_reference.missing(document))


def test_the_page_is_what_the_schema_says(document):
    is_current = http_reference.PAGE.read_text(encoding="utf-8") == http_reference.text(document)
    assert is_current, f"docs/reference/http-bodies.md is not up to date; run `{http_reference.COMMAND}`."


def test_the_page_has_every_method():
    public = {"GET answers/{token}/", "POST answers/{token}/", "GET blobs/{ticket}/"}
    stream = {"GET {s}/events/stream/"}
    shown = {name for name in page("reference/http-bodies.md").sections if " " in name}
    assert public | stream <= shown
    assert len(shown) == len(every_method()) + len(public | stream)


def test_the_stream_has_its_parameters_and_a_frame():
    section = page("reference/http-bodies.md").sections["GET {s}/events/stream/"]
    assert [name for name in StreamQuery().fields if f"| `{name}` |" not in section] == []
    assert "event: tool_called" in section


def test_what_is_missing_is_a_sentence_that_says_what_to_run(document):
    lacking = deepcopy(document)
    root = next(path for path in lacking["paths"] if path.endswith("/webhooks/"))
    del lacking["paths"][root]["post"]["requestBody"]["content"]["application/json"]["examples"]
    del lacking["paths"][root.replace("webhooks", "memories")]
    unknown, without = http_reference.missing(lacking)
    assert "memories/ is not in the schema" in unknown
    assert 'POST webhooks/ has no example of its request: give `operation("create_webhook", sent=' in without
    for sentence in (unknown, without):
        assert sentence.endswith("run `python -m tools.http_reference`.")
