"""Liveness and readiness probes, for load balancers and orchestrators.

    path("health/", include("helix_sessions.health"))

`/health/live` checks nothing else. `/health/ready` queries the database. Neither shows more to a stranger.
"""

import logging

from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from helix_sessions.conf import conf
from helix_sessions.content import encryption
from helix_sessions.models.databases import sessions_database
from helix_sessions.store.engine.dialect import dialect_of

_log = logging.getLogger("helix_sessions.health")
_migrated: set[str] = set()


@never_cache
@require_safe
def live(request: HttpRequest) -> JsonResponse:
    """Liveness: this process answers."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """Readiness: the database answers, its migrations are applied, the encryption keys are valid."""
    checks = {"database": _database, "migrations": _migrations, "encryption": _encryption}
    found = {name: _try(name, check) for name, check in checks.items()}
    status = 200 if all(found.values()) else 503
    words = {name: "ok" if fine else "failing" for name, fine in found.items()}
    return JsonResponse({"status": "ok" if status == 200 else "failing", "checks": words}, status=status)


def _try(name: str, check: object) -> bool:
    try:
        return bool(check())  # type: ignore[operator]
    except Exception as error:
        _log.error("The check %s failed: %s", name, type(error).__name__)
        return False


def _database() -> bool:
    connection = connections[sessions_database(conf.API_DATABASE)]
    return dialect_of(connection).answers(connection)


def _migrations() -> bool:
    """Checked until all are applied: migrations do not go away again."""
    alias = sessions_database(conf.API_DATABASE)
    if alias not in _migrated:
        executor = MigrationExecutor(connections[alias])
        targets = [key for key in executor.loader.graph.leaf_nodes() if key[0] == "helix_sessions"]
        if executor.migration_plan(targets):
            return False
        _migrated.add(alias)
    return True


def _encryption() -> bool:
    encryption.keyring()
    return True


app_name = "helix_sessions_health"
urlpatterns = [path("live", live, name="live"), path("ready", ready, name="ready")]
