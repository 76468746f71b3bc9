"""The API in a project with rules of its own: they apply where they should, and break nothing."""

from typing import Any

import pytest
from django.core.cache import cache
from django.http import HttpResponse
from django.test import Client, override_settings
from django.urls import include
from django.urls import path as route
from rest_framework.permissions import BasePermission
from rest_framework.throttling import SimpleRateThrottle

pytestmark = pytest.mark.django_db

STREAM = "/api/sessions/s/events/stream/?after=0&wait=0"


def rest_framework(settings: Any, **more: Any) -> None:
    """The project's settings of Django REST framework, changed."""
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, **more}


class OnlyOnMondays(BasePermission):
    """A rule of a project."""

    message = "It is not Monday."

    def has_permission(self, request: Any, view: Any) -> bool:
        return False


class Twice(SimpleRateThrottle):
    """A rate of a project."""

    rate = "2/day"

    def get_cache_key(self, request: Any, view: Any) -> str:
        return f"twice-{request.user.pk}"


def test_its_permission_classes_are_asked_first(settings, api, session):
    rest_framework(settings, DEFAULT_PERMISSION_CLASSES=["tests.api.test_in_a_project.OnlyOnMondays"])
    for path in ("/api/sessions/s/", STREAM):
        answer = api.get(path)
        assert (answer.status_code, answer.json()["detail"]) == (403, "It is not Monday."), path


def test_its_throttles_are_asked_first(settings, api, session):
    rest_framework(settings, DEFAULT_THROTTLE_CLASSES=["tests.api.test_in_a_project.Twice"])
    assert [api.get("/api/sessions/s/").status_code for _ in range(3)] == [200, 200, 429]


def test_its_scoped_throttle_finds_no_scope_here(settings, api, session):
    scoped = "rest_framework.throttling.ScopedRateThrottle"
    rest_framework(settings, DEFAULT_THROTTLE_CLASSES=[scoped], DEFAULT_THROTTLE_RATES={})
    assert api.get("/api/sessions/s/").status_code == 200


VERSIONING = ["Namespace", "URLPath", "AcceptHeader", "QueryParameter", "HostName"]


def test_its_versioning_neither_breaks_nor_empties(settings, api, session):
    for name in VERSIONING:
        rest_framework(
            settings,
            DEFAULT_VERSIONING_CLASS=f"rest_framework.versioning.{name}Versioning",
            ALLOWED_VERSIONS=["v7"],
            DEFAULT_VERSION="v7",
        )
        assert api.get("/api/sessions/s/").status_code == 200, name
        assert "/api/sessions/{session_id}/" in api.get("/schema/").content.decode(), name


def test_its_renderers_parsers_pages_and_handler_stay_out(settings, api, session):
    rest_framework(
        settings,
        DEFAULT_RENDERER_CLASSES=["rest_framework.renderers.AdminRenderer"],
        DEFAULT_PARSER_CLASSES=["rest_framework.parsers.FormParser"],
        DEFAULT_PAGINATION_CLASS="rest_framework.pagination.PageNumberPagination",
        DEFAULT_FILTER_BACKENDS=["rest_framework.filters.SearchFilter"],
        PAGE_SIZE=1,
        EXCEPTION_HANDLER="tests.api.test_in_a_project.no_handler",
        UNAUTHENTICATED_USER=None,
    )
    assert set(api.get("/api/sessions/").json()) == {"items", "next_cursor"}
    assert api.patch("/api/sessions/s/metadata/", {"a": 1}).status_code == 200
    missing = api.get("/api/sessions/unknown/")
    assert (missing.status_code, missing["Content-Type"]) == (404, "application/problem+json")
    assert Client().get("/api/sessions/s/").status_code == 401


def no_handler(error: Exception, context: Any) -> None:
    raise AssertionError("The project's handler was asked.")


def test_the_stream_runs_where_requests_are_transactions(settings, api, session):
    from django.db import connections

    with override_settings():
        connections["default"].settings_dict["ATOMIC_REQUESTS"] = True
        try:
            assert api.get(STREAM).status_code == 200
            assert api.patch("/api/sessions/s/metadata/", {"a": 1}).status_code == 200
        finally:
            connections["default"].settings_dict["ATOMIC_REQUESTS"] = False


class TestAddresses:
    def test_are_there_with_their_version(self, api, session):
        for path in ("/api/v1/", "/api/v1/sessions/s/", "/api/v1/sessions/s", "/api/v1/sessions/s/messages/"):
            assert api.get(path).status_code == 200, path
        assert api.get("/api/v1/sessions/s/events/stream/?after=0&wait=0").status_code == 200

    def test_lead_to_addresses_of_the_same_version(self, api, session, store):
        store.append_messages("s", [{"role": "user", "content": str(number)} for number in range(2)])
        for prefix in ("/api/", "/api/v1/"):
            root = f"http://testserver{prefix}"
            sessions = api.get(prefix).json()["sessions"]
            assert sessions == f"{root}sessions/"
            made = api.post(sessions, {"agent_type": "test"})
            assert made["Location"] == f"{root}sessions/{made.json()['session_id']}/"
            page = api.get(f"{prefix}sessions/s/messages/?limit=1")
            assert page["Link"].startswith(f"<{root}sessions/s/messages/?")
            ticket = api.post(f"{prefix}sessions/s/stream/tickets/").json()["url"]
            assert ticket.startswith(f"{root}sessions/s/events/stream/?ticket=")
            assert Client().get(f"{ticket}&after=0&wait=0").status_code == 200

    def test_that_do_not_exist_are_problems(self, api, session):
        below = ("nothing/", "nothing", "sessions/s/nothing/", "sessions/s/runs/r/more/", "sessionsx/")
        others = (
            "tool-rules/r/x/",
            "webhooks/w/x",
            "memories/x/",
            "staging/x/",
            "blobs/b/x/",
            "answers/a/x/",
        )
        for path in (*below, *others, "v1/nothing", "v1/webhooks/w/x/"):
            for method in ("get", "post"):
                answer = getattr(api, method)(f"/api/{path}")
                assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json"), path
                assert answer.json()["code"] == "not_found"
                assert answer["X-Request-ID"]
            assert Client().get(f"/api/{path}").status_code == 401

    @override_settings(ROOT_URLCONF="tests.api.test_in_a_project")
    def test_of_the_project_below_the_same_prefix_are_left_alone(self, api, client):
        for path in ("/api/before/", "/api/after/", "/api/after/all/"):
            assert client.get(path).content == b"theirs", path
        assert client.get("/api/after")["Location"] == "/api/after/"
        assert client.get("/nothing/")["Content-Type"].startswith("text/html")
        assert client.get("/api/nothing/")["Content-Type"] == "application/problem+json"
        assert api.get("/v2/api/nothing/")["Content-Type"] == "application/problem+json"

    @override_settings(ROOT_URLCONF=(route("", include("helix_sessions.api.urls")),))
    def test_that_do_not_exist_are_the_projects_where_the_api_has_no_prefix(self, api, client):
        assert client.get("/nothing/")["Content-Type"].startswith("text/html")
        assert api.get("/sessions/s/nothing/").json()["code"] == "not_found"


def theirs(request: Any, **ids: Any) -> HttpResponse:
    """A view of the project."""
    return HttpResponse("theirs")


urlpatterns = [
    route("api/before/", theirs),
    route("api/", include("helix_sessions.api.urls")),
    route("api/after/", theirs),
    route("api/<path:rest>/all/", theirs),
    route("v2/api/", include("helix_sessions.api.urls", namespace="again")),
]
"""A project that has addresses of its own below the prefix of ours."""


class TestHeaders:
    @pytest.fixture(autouse=True)
    def nothing_is_counted_yet(self):
        cache.clear()

    def test_a_request_id_is_given_back_or_made(self, api, session):
        assert api.get("/api/sessions/s/", headers={"X-Request-ID": "abc"})["X-Request-ID"] == "abc"
        made = {api.get("/api/sessions/unknown/")["X-Request-ID"] for _ in range(2)}
        assert len(made) == 2
        forged = api.get("/api/sessions/s/", headers={"X-Request-ID": "ä\x7f"})["X-Request-ID"]
        assert forged.isascii()
        assert forged.isprintable()

    def test_of_every_answer_are_those_of_a_stream_too(self, settings, api, session):
        settings.HELIX_SESSIONS = {"API_THROTTLE_RATES": {"read": "3/min"}}
        for accept in ("text/event-stream", "application/json"):
            answer = api.get(STREAM, headers={"X-Request-ID": "abc", "Accept": accept})
            assert (answer.status_code, answer["X-Request-ID"]) == (200, "abc")
            assert answer["RateLimit-Limit"] == "3"

    def test_rates_say_what_is_left(self, settings, api, session):
        assert "RateLimit-Limit" not in api.get("/api/sessions/s/")
        settings.HELIX_SESSIONS = {"API_THROTTLE_RATES": {"read": "3/min"}}
        left = [api.get("/api/sessions/s/")["RateLimit-Remaining"] for _ in range(4)]
        assert left == ["2", "1", "0", "0"]
        answer = api.get("/api/sessions/s/")
        assert (answer.status_code, answer["RateLimit-Limit"]) == (429, "3")
        assert 1 <= int(answer["RateLimit-Reset"]) <= 60


def test_a_branch_without_an_id_gets_one(api, session, store):
    answer = api.post("/api/sessions/s/clone/", {})
    assert answer.status_code == 201
    assert store.load_state(answer.json()["session_id"]).forked_from == ("s", None)
    assert store.clone_session("s", None).session_id not in ("s", answer.json()["session_id"])


def test_a_session_is_described_anew(api, session, store):
    body = {"title": "A lost parcel", "tags": ["vip"], "user_id": "u", "metadata": {"tier": "gold"}}
    answer = api.patch("/api/sessions/s/", body, headers={"If-Match": '"1"'})
    assert (answer.status_code, answer["ETag"]) == (200, '"2"')
    state = store.load_state("s")
    assert answer.json()["metadata"] == state.metadata == {"title": "A lost parcel", "tier": "gold"}
    assert (state.tags, state.user_id) == (("vip",), "u")
    assert api.patch("/api/sessions/s/", body).status_code == 200
    assert api.patch("/api/sessions/s/", {"tags": ["vip"]}).json()["version"] == 3, "Nothing has changed."
    assert api.patch("/api/sessions/s/", {"title": None}).json()["metadata"] == {"tier": "gold"}
