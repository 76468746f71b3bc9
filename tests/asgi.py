"""The demo project for an ASGI server of a test, with its static files."""

import os

from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

application = ASGIStaticFilesHandler(get_asgi_application())
