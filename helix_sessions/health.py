"""Whether this process lives, and whether it can serve: for load balancers and orchestrators.

    path("health/", include("helix_sessions.health"))

`/health/live` asks nothing of anything. `/health/ready` asks the database. Neither tells a stranger more.
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

_log = logging.getLogger("helix_sessions.health")
_migrated: set[str] = set()


@never_cache
@require_safe
def live(request: HttpRequest) -> JsonResponse:
    """This process answers."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """This process can work: the database answers, its tables are those of this version, keys are keys."""
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
    with connections[conf.API_DATABASE].cursor() as cursor:
        cursor.execute("SELECT 1")
        return bool(cursor.fetchone() == (1,))


def _migrations() -> bool:
    """Looked at until they are there: they do not go away again."""
    alias = conf.API_DATABASE
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
