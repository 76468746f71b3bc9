"""The settings of the server whose streams are measured."""

from bench.settings import *  # noqa: F403
from bench.settings import INSTALLED_APPS as _APPS

INSTALLED_APPS = [*_APPS, "rest_framework", "django_filters"]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
ROOT_URLCONF = "bench.streams.urls"
ALLOWED_HOSTS = ["127.0.0.1"]
HELIX_SESSIONS = {"STREAMS_PER_USER": 10_000}
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.SessionAuthentication"],
}
