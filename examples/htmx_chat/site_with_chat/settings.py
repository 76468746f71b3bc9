from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = "only for this example"
DEBUG = USE_TZ = True
_CONTRIB = ("auth", "contenttypes", "sessions", "staticfiles")
INSTALLED_APPS = [
    *(f"django.contrib.{name}" for name in _CONTRIB),
    "django_htmx",
    "helix_sessions",
    "site_with_chat",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": BASE_DIR / "db.sqlite3",
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 30},
        "TEST": {"NAME": BASE_DIR / "test.sqlite3"},
    }
}
ROOT_URLCONF = "site_with_chat.urls"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "chat"
STATIC_URL = "static/"
HELIX_SESSIONS = {"AGENTS": {"guide": "site_with_chat.agents.guide"}}
