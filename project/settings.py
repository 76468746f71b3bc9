"""Settings of the demo project, for loopback.

Read from the environment: `DATABASE_URL` (an SQLite file in `var/` without it), `HELIX_DEBUG`
(on unless `0`, `false`, `no` or `off`) and `HELIX_SECRET_KEY` (made once in `var/` without it).
"""

import os
from pathlib import Path
from typing import Any

from project.agents import AGENTS
from project.database import database_from_url
from project.secret_key import secret_key_from_file

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = BASE_DIR / "var"
DATA_DIR.mkdir(exist_ok=True)

DEBUG = os.environ.get("HELIX_DEBUG", "1").lower() not in ("0", "false", "no", "off")
SECRET_KEY = os.environ.get("HELIX_SECRET_KEY") or secret_key_from_file(DATA_DIR / "secret_key")
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "helix_sessions",
    "project",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

ROOT_URLCONF = "project.urls"
ASGI_APPLICATION = "project.asgi.application"
WSGI_APPLICATION = "project.wsgi.application"

DATABASES: dict[str, dict[str, Any]] = {
    "default": database_from_url(os.environ.get("DATABASE_URL") or f"sqlite:///{DATA_DIR}/demo.sqlite3"),
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTHENTICATION_BACKENDS = ["project.attempts.GuardedBackend", "project.visitors.VisitorBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

TIME_ZONE = "UTC"
USE_TZ = True

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "project.tokens.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "NUM_PROXIES": 0,
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
}

SPECTACULAR_SETTINGS = {
    "TITLE": "helix_sessions",
    "DESCRIPTION": "The durable memory of AI agents: sessions, messages, runs, checkpoints and an event log.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/",
    "COMPONENT_SPLIT_PATCH": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "PATH_CONVERTER_OVERRIDES": {"helix_id": {"type": "string", "minLength": 1}},
}

STATIC_URL = "static/"
STATIC_ROOT = DATA_DIR / "static"

HELIX_SESSIONS: dict[str, Any] = {
    "AGENTS": AGENTS,
    "TRANSCRIPT_SEARCH": True,
    "SUMMARIZER": "project.summaries.brief",
    "STREAM_POLL_SECONDS": 0.15,  # on SQLite words of the worker are read, not told
}
