from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = "only for this example"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "helix_sessions", "newsroom"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": BASE_DIR / "db.sqlite3",
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 30},
        "TEST": {"NAME": BASE_DIR / "test.sqlite3"},
    }
}
HELIX_SESSIONS = {
    "AGENTS": {"editor": "newsroom.agents.editor", "reader": "newsroom.agents.reader"},
}
