"""The smallest Django project that has the app: one database alias for each place it is measured at.

`HELIX_BENCH_DATABASES` is a JSON object of aliases and addresses; child processes inherit it.
"""

import json
import os

from project.database import database_from_url

SECRET_KEY = "bench"
DEBUG = False
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "helix_sessions",
]
DATABASES = {
    alias: database_from_url(url) for alias, url in json.loads(os.environ["HELIX_BENCH_DATABASES"]).items()
}
