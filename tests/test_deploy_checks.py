"""What `check --deploy` warns of, and what it leaves alone."""

from typing import Any

from django.core.checks import run_checks
from django.test import override_settings
from rest_framework.authentication import SessionAuthentication

from tests.rows import each


class Exempt(SessionAuthentication):
    """What people paste to be rid of the CSRF token."""

    def enforce_csrf(self, request: Any) -> None:
        """Leave it to nobody."""


class Everything:
    """A policy that was to be finished later."""

    def may(self, request: Any, verb: str, session: Any) -> bool:
        return True


class Curious:
    """A policy that reads what only a request of the API has."""

    def may(self, request: Any, verb: str, session: Any) -> bool:
        return bool(request.auth.scopes and session.agent_type)


urlpatterns: list[Any] = []
"""The addresses of a project that has none of ours."""


def kinds(*names: str) -> dict[str, Any]:
    return {"REST_FRAMEWORK": {"DEFAULT_AUTHENTICATION_CLASSES": list(names), "NUM_PROXIES": 0}}


def storage(location: str) -> dict[str, Any]:
    kept = {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": location}}
    static = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    return {
        "STORAGES": {"default": kept, "kept": kept, "staticfiles": static},
        "MEDIA_ROOT": "/srv/media",
        "HELIX_SESSIONS": {"BLOB_STORAGE": "kept"},
    }


SESSION = "rest_framework.authentication.SessionAuthentication"
BASIC = "rest_framework.authentication.BasicAuthentication"
CACHES = "django.core.cache.backends"

ROWS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("W007", {"HELIX_SESSIONS": {"PARTICIPANT_AGENT_TYPES": "*"}}, {"HELIX_SESSIONS": {}}),
    ("W008", {"HELIX_SESSIONS": {"TRACE_CONTENT": True}}, {"HELIX_SESSIONS": {}}),
    ("W009", {"HELIX_SESSIONS": {"WEBHOOK_ALLOW_PRIVATE": True}}, {"HELIX_SESSIONS": {}}),
    ("W011", kinds(), kinds(SESSION)),
    ("W012", kinds(SESSION, BASIC), kinds(SESSION)),
    ("W012", {"REST_FRAMEWORK": {}}, kinds(SESSION)),
    ("W013", kinds("tests.test_deploy_checks.Exempt"), kinds(SESSION)),
    (
        "W014",
        {"HELIX_SESSIONS": {"API_POLICY": "tests.test_deploy_checks.Everything"}},
        {"HELIX_SESSIONS": {"API_POLICY": "tests.test_deploy_checks.Curious"}},
    ),
    (
        "W015",
        {"CACHES": {"default": {"BACKEND": f"{CACHES}.locmem.LocMemCache"}}},
        {"CACHES": {"default": {"BACKEND": f"{CACHES}.db.DatabaseCache", "LOCATION": "kept"}}},
    ),
    ("W016", {"REST_FRAMEWORK": {}}, kinds(SESSION)),
    ("W017", storage("/srv/media/attachments"), storage("/srv/attachments")),
]


def warned(**options: Any) -> dict[str, Any]:
    return {str(found.id).removeprefix("helix_sessions."): found for found in run_checks(**options)}


@each(("id", "risky", "safe"), ROWS)
def test_a_deployment_is_warned(id: str, risky: dict[str, Any], safe: dict[str, Any]) -> None:
    with override_settings(**risky):
        assert warned(include_deployment_checks=True)[id].hint
        assert id not in warned(), "it is for deployments only"
    with override_settings(**safe):
        assert id not in warned(include_deployment_checks=True)


def test_the_default_policy_is_silent() -> None:
    with override_settings(HELIX_SESSIONS={}):
        assert "W014" not in warned(include_deployment_checks=True)


def test_a_project_without_the_api_is_not_told_of_it() -> None:
    with override_settings(ROOT_URLCONF=__name__, REST_FRAMEWORK={}, HELIX_SESSIONS={}):
        found = warned(include_deployment_checks=True)
    assert not {"W004", "W011", "W012", "W013", "W015", "W016"} & set(found)
