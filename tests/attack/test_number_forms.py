"""Numbers that JSON can spell and nobody can keep: refused at every door, or taken as the text they are."""

import json
from collections.abc import Iterator
from itertools import cycle
from typing import Any
from urllib.parse import quote

import pytest

from helix_sessions.admin.forms import ResultForm
from helix_sessions.store import SessionStore
from helix_sessions.transcripts import open_tool_calls
from tests.api.filled import fill
from tests.api.routes import BODIES, FRONT_ENDS, address
from tests.invariants import assert_healthy

FORMS = ("1e400", "-1e400", "1e309", "-1E+99999", "NaN", "Infinity", "9" * 5_000)
_HERE = "\ue000"


def spellings(body: Any, numbers: Iterator[str]) -> Iterator[str]:
    """The body as JSON with a number in place of each value in it, and in a place of its own."""
    for place in _places(body):
        yield json.dumps(_put(body, place)).replace(json.dumps(_HERE), next(numbers))


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    if isinstance(value, dict):
        yield (*at, "more")
        for key in value:
            yield from _places(value[key], (*at, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from _places(value[index], (*at, index))


def _put(value: Any, place: tuple[Any, ...]) -> Any:
    if not place:
        return _HERE
    copy = dict(value) if isinstance(value, dict) else list(value)
    inner = value[place[0]] if place[0] != "more" else None
    copy[place[0]] = _put(inner, place[1:])
    return copy


@pytest.mark.django_db(transaction=True)
def test_no_address_takes_them(api: Any, user: Any, store: SessionStore) -> None:
    store.create_session("s", agent_type="a", owner=user, metadata={"k": 1})
    fill(store, "s")
    forms = cycle(FORMS)  # seven of them, so that each meets every place of a body sooner or later
    sent = 0
    bodies = [(*pair, body) for pair, body in BODIES.items() if pair[1] not in FRONT_ENDS]
    for method, name, body in (
        bodies * 2
    ):  # a page's protocol takes what it does not know, and keeps none of it
        for text in spellings(body, forms):
            answer = api.generic(method.upper(), address(name, "s"), text, content_type="application/json")
            assert 400 <= answer.status_code < 500, (method, name, text[:300], answer.content[:300])
            sent += 1
    assert sent > 200
    for number in FORMS:
        asked = quote(f'{{"k":{number}}}')
        answer = api.get(f"{address('sessions', 's')}?metadata={asked}")
        assert answer.status_code == 400, (number, answer.content[:300])
    store.save_state("s", store.load_state("s"))
    assert_healthy("s", "sub")


def test_an_operator_who_answers_with_one_answers_with_text() -> None:
    for number in FORMS:
        form = ResultForm({"result": number, "reason": "x", "call": "c", "asked_at": ""})
        form.is_valid()
        assert form.cleaned_data["result"] == number


def test_arguments_that_spell_one_stay_text() -> None:
    for number in FORMS:
        arguments = f'{{"n":{number}}}'
        call = {"id": "c", "type": "function", "function": {"name": "t", "arguments": arguments}}
        [found] = open_tool_calls([{"role": "assistant", "tool_calls": [call]}])
        assert found["arguments"] == arguments
