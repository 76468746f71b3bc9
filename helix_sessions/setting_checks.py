"""System checks of what settings name: paths that import and fit, aliases that exist, known values."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from rest_framework.throttling import SimpleRateThrottle

from helix_sessions.conf import RATE_SCOPES, conf
from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.runtime.agents import driven, is_agent
from helix_sessions.types import RECOVERY_POLICIES
from helix_sessions.values.shares import problems


@register()
def check_paths(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Every dotted path of `HELIX_SESSIONS` imports, and is what its setting takes."""
    found: list[CheckMessage] = []
    for setting, path, fits, wanted in _paths():
        try:
            value = import_string(path)
        except ImportError as error:
            found.append(_wrong_path(setting, f"{path!r} cannot be imported: {error}", wanted))
            continue
        except Exception as error:
            problem = f"{path!r} raised {type(error).__name__} when it was imported: {error}"
            found.append(_wrong_path(setting, problem, wanted))
            continue
        if not fits(value):
            found.append(_wrong_path(setting, f"{path!r} is a {type(value).__name__}.", wanted))
        elif fits is _may_be_an_agent and (why := _refusal(value)) is not None:
            found.append(_wrong_path(setting, why, wanted))
    return found


def _paths() -> Iterator[tuple[str, str, Callable[[Any], bool], str]]:
    """Setting, path, whether a value fits it, and what is wanted."""
    if isinstance(conf.AGENTS, dict):
        for name, path in conf.AGENTS.items():
            if isinstance(path, str):
                yield f"AGENTS[{name!r}]", path, _may_be_an_agent, "an agent, or a callable that makes one"
    for name in ("WAKER", "SUMMARIZER", "EMBEDDER"):
        path = getattr(conf, name)
        if isinstance(path, str) and path:
            yield name, path, callable, "a function"
    if isinstance(conf.API_POLICY, str):
        wanted = "a class with the method may(request, verb, session)"
        yield "API_POLICY", conf.API_POLICY, lambda value: hasattr(value, "may"), wanted
    if isinstance(conf.WORKSPACE_PROVIDERS, dict):
        for name, entry in conf.WORKSPACE_PROVIDERS.items():
            yield f"WORKSPACE_PROVIDERS[{name!r}]", _path_of(entry), callable, "a class of providers"


def _path_of(entry: Any) -> str:
    """Of a path, or of a path and its arguments."""
    return str(entry[0] if isinstance(entry, list | tuple) and entry else entry)


def _may_be_an_agent(value: Any) -> bool:
    """One with `run_turn`, an agent of a framework, or what makes one: it is called when it is first used."""
    return is_agent(value) or callable(value)


def _refusal(value: Any) -> str | None:
    """Why an agent cannot be driven, if it is one and that can be said."""
    if isinstance(value, type) or not is_agent(value):
        return None
    try:
        driven(value)
    except (HelixSessionsError, ImportError) as error:
        return str(error)
    return None


def _wrong_path(setting: str, problem: str, wanted: str) -> Error:
    return Error(
        f"HELIX_SESSIONS: {setting} is wrong: {problem}",
        hint=f"It is the dotted path of {wanted}.",
        id="helix_sessions.E009",
    )


@register()
def check_aliases(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Databases and storages that are named exist."""
    named = {
        "API_DATABASE": (conf.API_DATABASE, settings.DATABASES, "DATABASES"),
        "ARCHIVE_STORAGE": (conf.ARCHIVE_STORAGE, settings.STORAGES, "STORAGES"),
        "BLOB_STORAGE": (conf.BLOB_STORAGE, settings.STORAGES, "STORAGES"),
    }
    return [
        Error(
            f"HELIX_SESSIONS[{name!r}] is {alias!r}, which is not in {where}.",
            hint=f"Known aliases: {', '.join(known)}.",
            id="helix_sessions.E010",
        )
        for name, (alias, known, where) in named.items()
        if alias and alias not in known
    ]


@register()
def check_rates(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Rates can be read, and are of a scope that there is."""
    rates = conf.API_THROTTLE_RATES if isinstance(conf.API_THROTTLE_RATES, dict) else {}
    found: list[CheckMessage] = [
        Error(
            f"HELIX_SESSIONS['API_THROTTLE_RATES'] has the scope {scope!r}, which there is not.",
            hint=f"One of {', '.join(RATE_SCOPES)}.",
            id="helix_sessions.E011",
        )
        for scope in rates
        if scope not in RATE_SCOPES
    ]
    for scope, rate in rates.items():
        try:
            SimpleRateThrottle.parse_rate(_Parser(), rate)
        except (ValueError, KeyError, IndexError, AttributeError, ImproperlyConfigured):
            found.append(
                Error(
                    f"HELIX_SESSIONS['API_THROTTLE_RATES'][{scope!r}] is {rate!r}, which is no rate.",
                    hint='A rate is a number and a period: "60/min", "50/s", "1000/day".',
                    id="helix_sessions.E011",
                )
            )
    return found


class _Parser(SimpleRateThrottle):
    """Reads a rate, and counts nothing."""

    def __init__(self) -> None:
        """Leave the cache alone."""


@register()
def check_recovery(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """What becomes of abandoned runs is one of the known policies."""
    policies = conf.RECOVERY if isinstance(conf.RECOVERY, dict) else {}
    return [
        Error(
            f"HELIX_SESSIONS['RECOVERY'][{agent_type!r}] is {policy!r}, which is no policy.",
            hint=f"One of {', '.join(RECOVERY_POLICIES)}.",
            id="helix_sessions.E012",
        )
        for agent_type, policy in policies.items()
        if policy not in RECOVERY_POLICIES
    ]


@register()
def check_concurrency(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """What bounds what runs at once is an owner or an agent type, and a number."""
    if not isinstance(conf.CONCURRENCY, dict):
        return []  # said by `check_settings`
    hint = 'For example {"owner": 4, "agent_type:research": 10}.'
    return [
        Error(f"HELIX_SESSIONS['CONCURRENCY']: {problem}", hint=hint, id="helix_sessions.E016")
        for problem in problems(conf.CONCURRENCY)
    ]


@register()
def check_compaction(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """The compaction policy can be made."""
    from helix_sessions.runtime.compaction import configured_policy

    if not isinstance(conf.COMPACTION, dict):
        return []  # said by `check_settings`
    try:
        configured_policy()
    except HelixSessionsError as error:
        hint = "Its keys are the arguments of CompactionPolicy."
        return [Error(str(error), hint=hint, id="helix_sessions.E013")]
    return []
