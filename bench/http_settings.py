"""The project that the HTTP benchmark serves: the app, its API, the demo's tokens, and pooled connections.

`HELIX_BENCH_HTTP` is the address of its database.
"""

import os
from typing import Any

from project.database import database_from_url

SECRET_KEY = "bench"
DEBUG = False
USE_TZ = True
TIME_ZONE = "UTC"
ALLOWED_HOSTS = ["127.0.0.1"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "rest_framework",
    "django_filters",
    "helix_sessions",
    "project",
]
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
ROOT_URLCONF = "bench.http_urls"
REST_FRAMEWORK = {"DEFAULT_AUTHENTICATION_CLASSES": ["project.tokens.TokenAuthentication"]}
LOGGING_CONFIG = None

_database: dict[str, Any] = database_from_url(os.environ["HELIX_BENCH_HTTP"])
_database["OPTIONS"] = {**_database["OPTIONS"], "pool": {"min_size": 4, "max_size": 8}}
DATABASES = {"default": _database}
