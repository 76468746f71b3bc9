"""Checks of `manage.py check --deploy`: what is convenient on a laptop and risky on the internet."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.core.checks import CheckMessage, Tags, Warning, register
from django.core.files.storage import FileSystemStorage, storages
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.module_loading import import_string
from rest_framework.authentication import BasicAuthentication, SessionAuthentication
from rest_framework.settings import api_settings

from helix_sessions.conf import conf

NOT_SHARED = {
    "django.core.cache.backends.locmem.LocMemCache": "in each process by itself",
    "django.core.cache.backends.dummy.DummyCache": "nowhere",
}

FOR_FEW = ("set_tool_rule", "create_webhook", "save_state", "emit_event", "release_lease")
"""Verbs that no policy gives to a user who is not logged in."""


@register(Tags.security, deploy=True)
def check_throttles(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """A deployment limits the requests of one user, where the HTTP API is mounted."""
    if not _is_mounted():
        return []
    missing = [scope for scope in ("create", "write", "read") if not conf.API_THROTTLE_RATES.get(scope)]
    if not missing:
        return []
    return [
        Warning(
            f"The HTTP API does not limit how often a user may {', '.join(missing)}.",
            hint='HELIX_SESSIONS = {"API_THROTTLE_RATES": '
            '{"create": "60/min", "write": "1200/min", "read": "3000/min"}}',
            id="helix_sessions.W004",
        )
    ]


@register(Tags.security, deploy=True)
def check_langgraph(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """A writer to the database cannot have LangGraph build any object."""
    adapter = sys.modules.get("helix_sessions.integrations.langgraph.strictness")
    if adapter is None or adapter.is_strict():
        return []
    return [
        Warning(
            "LangGraph builds any Python object that a stored checkpoint names.",
            hint="DjangoSaver(strict=True), or LANGGRAPH_STRICT_MSGPACK=true in the environment.",
            id="helix_sessions.W010",
        )
    ]


@register(Tags.security, deploy=True)
def check_deployment(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """What is convenient on a laptop and risky on the internet."""
    found: list[CheckMessage] = []
    if conf.PARTICIPANT_AGENT_TYPES is not None and "*" in conf.PARTICIPANT_AGENT_TYPES:
        found.append(
            Warning(
                "Every user may create sessions of every agent type over HTTP.",
                hint="Name the types in HELIX_SESSIONS['PARTICIPANT_AGENT_TYPES'].",
                id="helix_sessions.W007",
            )
        )
    if conf.TRACE_CONTENT:
        found.append(
            Warning(
                "Traces carry what people and models say.",
                hint="Unset HELIX_SESSIONS['TRACE_CONTENT'], unless the collector may see it.",
                id="helix_sessions.W008",
            )
        )
    if conf.WEBHOOK_ALLOW_PRIVATE:
        found.append(
            Warning(
                "Webhooks may be sent to private addresses and by plain http.",
                hint="Unset HELIX_SESSIONS['WEBHOOK_ALLOW_PRIVATE'].",
                id="helix_sessions.W009",
            )
        )
    return found


@register(Tags.security, deploy=True)
def check_authentication(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """The ways to log in to the HTTP API are safe on the internet, where it is mounted."""
    if not _is_mounted():
        return []
    kinds: list[Any] = list(api_settings.DEFAULT_AUTHENTICATION_CLASSES)
    if not kinds:
        return [
            Warning(
                "No user can log in to the HTTP API: every request is refused.",
                hint="Name a class in REST_FRAMEWORK['DEFAULT_AUTHENTICATION_CLASSES'].",
                id="helix_sessions.W011",
            )
        ]
    found: list[CheckMessage] = []
    if any(_is_a(kind, BasicAuthentication) for kind in kinds):
        found.append(
            Warning(
                "The HTTP API takes passwords with any request, so that they can be guessed at any rate.",
                hint="REST_FRAMEWORK['DEFAULT_AUTHENTICATION_CLASSES'] has BasicAuthentication, which is also"
                " its default. Name the classes you use, such as TokenAuthentication.",
                id="helix_sessions.W012",
            )
        )
    found += [
        Warning(
            f"{kind.__name__} lets other sites use a person's login on the HTTP API.",
            hint="It overrides enforce_csrf. Use SessionAuthentication, and send the CSRF token.",
            id="helix_sessions.W013",
        )
        for kind in kinds
        if _is_a(kind, SessionAuthentication) and kind.enforce_csrf is not SessionAuthentication.enforce_csrf
    ]
    return found


def _is_a(kind: Any, base: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, base)


@register(Tags.security, deploy=True)
def check_policy(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """The policy of the HTTP API refuses something."""
    request: Any = HttpRequest()
    request.method, request.user = "POST", AnonymousUser()
    try:
        policy = import_string(conf.API_POLICY)()
        allows_all = all(policy.may(request, verb, None) for verb in FOR_FEW)
    except Exception:
        return []  # it wants to know more of a request than there is
    if not allows_all:
        return []
    return [
        Warning(
            f"{conf.API_POLICY} allows what takes a driver or an operator, even without permissions.",
            hint="Let may() ask who request.user is: users approve their own calls and change states.",
            id="helix_sessions.W014",
        )
    ]


@register(Tags.security, deploy=True)
def check_counting(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Rates are counted for all processes, and by addresses that clients cannot choose."""
    if not _is_mounted():
        return []
    found: list[CheckMessage] = []
    backend = settings.CACHES.get("default", {}).get("BACKEND", "")
    if backend in NOT_SHARED:
        found.append(
            Warning(
                f"The rates of the HTTP API are counted {NOT_SHARED[backend]}.",
                hint="Make CACHES['default'] a cache that all processes share: Redis, Memcached, a table.",
                id="helix_sessions.W015",
            )
        )
    if api_settings.NUM_PROXIES is None:
        found.append(
            Warning(
                "Clients choose the address that their requests are counted under.",
                hint="Set REST_FRAMEWORK['NUM_PROXIES'] to the number of your proxies; 0 without any.",
                id="helix_sessions.W016",
            )
        )
    return found


@register(Tags.security, deploy=True)
def check_public_files(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """What is stored outside of the database is not where the web server hands out files."""
    return [
        Warning(
            f"HELIX_SESSIONS[{name!r}] is below MEDIA_ROOT, where anybody may fetch it.",
            hint="Name a storage of its own in STORAGES, outside of MEDIA_ROOT.",
            id="helix_sessions.W017",
        )
        for name, alias in (("BLOB_STORAGE", conf.BLOB_STORAGE), ("ARCHIVE_STORAGE", conf.ARCHIVE_STORAGE))
        if alias in settings.STORAGES and _is_public(storages[alias])
    ]


def _is_public(storage: Any) -> bool:
    if not isinstance(storage, FileSystemStorage) or not settings.MEDIA_ROOT:
        return False
    return Path(storage.location).is_relative_to(Path(settings.MEDIA_ROOT).resolve())


def _is_mounted() -> bool:
    """Whether the project has our addresses."""
    try:
        reverse("helix_sessions:root")
    except NoReverseMatch:
        return False
    return True
