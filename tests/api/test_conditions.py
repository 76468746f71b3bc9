"""`ETag`, `If-Match`, `If-None-Match`."""

import pytest

from helix_sessions.models import Message, StateSnapshot
from tests.api.filled import headers_of, prepare
from tests.api.routes import BODIES, FRONT_ENDS, address, of_a_session
from tests.api.statements import captured_statements
from tests.api.test_problems import is_problem
from tests.rows import each

pytestmark = pytest.mark.django_db

WITHOUT_A_VERSION = {
    "staging",
    "events",
    "event-projection",
    "inputs",
    "idle",
    "blob",
    "feedback-list",
    *FRONT_ENDS,
}
CONDITIONAL_READS = sorted(
    name for method, name in of_a_session() if method == "get" and name not in WITHOUT_A_VERSION
)
CHECKED_WRITES = sorted(
    (method, name)
    for method, name in of_a_session()
    if method != "get"
    and (method, name) != ("put", "session")
    and name
    not in {
        *("attach", "detach", "wake", "fragments", "cleanup-session-staging", "answer-links", "child"),
        *("lease", "stream-tickets", "blobs", "feedback", *FRONT_ENDS),
    }
)
"""Without those that raise no version, and the one whose condition is about the child."""


@each("name", CONDITIONAL_READS)
def test_reads_are_tagged_and_304_reads_no_documents(name, api, filled, store):
    store.append_messages(filled, [{"role": "user", "content": "hello"}])
    version = store.load_state(filled).version
    path = address(name, filled)
    assert api.get(path)["ETag"] == f'"{version}"'
    for header in (f'"{version}"', f'"1", W/"{version}"', "*"):
        with captured_statements() as statements:
            response = api.get(path, headers={"If-None-Match": header})
        assert (response.status_code, response.content) == (304, b"")
        assert response["ETag"] == f'"{version}"'
        [sql] = statements
        assert "custom_state" not in sql
        assert StateSnapshot._meta.db_table not in sql
        assert Message._meta.db_table not in sql
        assert "output" not in sql
    assert api.get(path, headers={"If-None-Match": '"1"'}).status_code == 200


@each(("method", "name"), CHECKED_WRITES)
def test_a_stale_write_is_412_and_changes_nothing(method, name, api, filled, store):
    headers = headers_of(store, filled, method, name)
    before, staged = store.load_state(filled), store.get_staged_changes(filled)
    for tag in ('"1"', '"99", "98"', '"nonsense"'):
        response = getattr(api, method)(
            address(name, filled), BODIES.get((method, name)), headers={"If-Match": tag, **headers}
        )
        body = is_problem(response, 412, "stale_state")
        assert body["current_version"] == before.version
        assert body["current_status"] == "active"
        assert (store.load_state(filled), store.get_staged_changes(filled)) == (before, staged)


@each("tag", ['"{}"', '"1", "{}"', "*"])
@each(("method", "name"), CHECKED_WRITES)
def test_a_current_write_is_done(method, name, tag, api, filled, store):
    if method == "post":
        prepare(store, filled, name)
    body = {"run_id": "r2"} if (method, name) == ("post", "runs") else BODIES.get((method, name))
    version = store.load_state(filled).version
    headers = {"If-Match": tag.format(version), **headers_of(store, filled, method, name)}
    response = getattr(api, method)(address(name, filled), body, headers=headers)
    assert response.status_code < 300
    if "ETag" in response and name != "clone":
        assert response["ETag"] == f'"{store.load_state(filled).version}"'


@each("header", ["12", "", '"12', "W/12"])
def test_what_is_no_tag_is_refused(header, api, session):
    response = api.post("/api/sessions/s/counters/step/", headers={"If-Match": header})
    is_problem(response, 400, "parse_error")


def test_put_creates_only_when_asked(api, session):
    created = api.put("/api/sessions/new/", {"agent_type": "a"}, headers={"If-None-Match": "*"})
    assert created.status_code == 201
    assert created["ETag"] == '"1"'
    response = api.put("/api/sessions/s/", {"agent_type": "a"}, headers={"If-None-Match": "*"})
    is_problem(response, 412, "precondition_failed")


def test_events_are_tagged_with_the_end_of_the_log(api, session):
    first = api.get("/api/sessions/s/events/")
    assert first["ETag"] == '"1.1"'
    assert api.get("/api/sessions/s/events/", headers={"If-None-Match": '"1.1"'}).status_code == 304
    api.post("/api/sessions/s/events/", {"type": "note"})
    assert api.get("/api/sessions/s/events/", headers={"If-None-Match": '"1.1"'}).status_code == 200


def test_compare_and_set_says_what_it_saw(api, session):
    body = {"expected_statuses": ["paused", "failed"], "new_status": "completed"}
    problem = is_problem(api.post("/api/sessions/s/status/", body), 409, "status_mismatch")
    assert (problem["current_status"], problem["current_version"]) == ("active", 1)
    stale = api.post("/api/sessions/s/status/", body, headers={"If-Match": '"7"'})
    is_problem(stale, 412, "stale_state")
    body["expected_statuses"] = ["active"]
    done = api.post("/api/sessions/s/status/", body, headers={"If-Match": '"1"'})
    assert done.json() == {"ok": True, "new_version": 2}
    assert done["ETag"] == '"2"'
