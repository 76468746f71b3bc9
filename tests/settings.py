"""The demo project's settings for tests.

`DATABASE_URL` names a PostgreSQL server; without it the tests use an SQLite file (see `conftest.py`).
`HELIX_TEST_POOLED` says that a transaction-pooling proxy is in between.
`HELIX_TEST_DATABASE_NAME` is set by `tests.parallel` for processes that join a running test.
"""

import os

os.environ.setdefault("HELIX_SECRET_KEY", "tests")

from project.database import database_from_url
from project.settings import *  # noqa: F403

if _url := os.environ.get("DATABASE_URL"):
    DATABASES = {"default": database_from_url(_url)}
else:
    DATABASES = {"default": database_from_url("sqlite:///unused.sqlite3")}
    # As `fsync` of the private server: no test takes the power away.
    DATABASES["default"]["OPTIONS"]["init_command"] = "PRAGMA synchronous=OFF;"
if os.environ.get("HELIX_TEST_POOLED"):
    DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = True
if _joined_database := os.environ.get("HELIX_TEST_DATABASE_NAME"):
    DATABASES["default"]["NAME"] = _joined_database

if os.environ.get("HELIX_TEST_ENCRYPTION"):
    # Everything that the tests store is encrypted, in every process of the run, whatever a test sets.
    from helix_sessions.conf import Conf

    Conf.ENCRYPTION = {
        "keys": {"tests": "dGVzdHMgb25seTogdGhpcnR5LXR3byBieXRlcyEhISE="},
        "active": "tests",
    }

DEBUG = False
HELIX_SESSIONS = {"SUMMARIZER": "project.summaries.brief"}  # tests name their own agents
ROOT_URLCONF = "tests.urls"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
