"""Every id that the store takes has an address."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_sessions.api.ids import from_segment, to_segment
from tests.rows import each

IDS = [
    "plain",
    "with space",
    "a/b",
    "/",
    "a//b/",
    "..",
    ".",
    "...",
    "a.b",
    "~",
    "~1",
    "a~0b",
    "100%",
    "%2F",
    "?#&=",
    "état/日本/🙂",
    "back\\slash",
    "state",
    "\u2028line",
    "cpv1-a/b-s1-t2-00000a",
]


@given(st.text())
def test_an_id_comes_back(value):
    segment = to_segment(value)
    assert "/" not in segment
    assert from_segment(segment) == value


@pytest.mark.django_db
@each("session_id", IDS)
def test_a_session_of_any_id_lives_and_dies(session_id, api, store):
    created = api.post("/api/sessions/", {"session_id": session_id, "agent_type": "a"})
    assert created.status_code == 201
    path = f"/api/sessions/{quote(to_segment(session_id), safe='')}/"
    location = created["Location"].removeprefix("http://testserver")
    for address in (path, location):
        assert api.get(address).json()["session_id"] == session_id
    assert api.put(path, {"agent_type": "a"}).status_code == 200
    assert api.post(f"{path}runs/", {"run_id": session_id}).status_code == 201
    assert api.get(f"{path}runs/{quote(to_segment(session_id), safe='')}/").json()["run_id"] == session_id
    assert api.get(f"{path}state/").json()["session_id"] == session_id
    assert api.delete(path).status_code == 204
    assert not store.session_exists(session_id)


@pytest.mark.django_db
@each("session_id", ["a\nb", "x" * 256, "\x7f", "é" * 400])
def test_what_is_no_id_is_refused(session_id, api):
    path = f"/api/sessions/{quote(session_id)}/"
    for response in (api.get(path), api.put(path, {"agent_type": "a"})):
        assert (response.status_code, response.json()["code"]) == (400, "invalid_input")
