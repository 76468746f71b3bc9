from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = "only for this example"
DEBUG = USE_TZ = True
_CONTRIB = ("admin", "auth", "contenttypes", "messages", "sessions", "staticfiles")
INSTALLED_APPS = [*(f"django.contrib.{name}" for name in _CONTRIB), "helix_sessions", "desk"]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
_PROCESSORS = ("template.context_processors.request", "contrib.auth.context_processors.auth")
_PROCESSORS = [f"django.{name}" for name in (*_PROCESSORS, "contrib.messages.context_processors.messages")]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": _PROCESSORS},
    }
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": BASE_DIR / "db.sqlite3",
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 30},
        "TEST": {"NAME": BASE_DIR / "test.sqlite3"},
    }
}
ROOT_URLCONF = "desk.urls"
STATIC_URL = "static/"
HELIX_SESSIONS = {"AGENTS": {"support": "desk.agents.support"}}
