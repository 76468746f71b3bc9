"""The demo project's addresses, and pages with the bundles that a test has built."""

import os
from pathlib import Path

from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.urls import path
from django.utils.html import format_html

from project.urls import urlpatterns as project_urls

PAGE = """<!doctype html><meta charset="utf-8"><title>Chat</title>
<body data-session="s" data-csrf="{}"><div id="root"></div>
<script type="module" src="/bundles/{}.js"></script>"""


def page(request: HttpRequest, name: str) -> HttpResponse:
    return HttpResponse(format_html(PAGE, get_token(request), name))


def bundle(request: HttpRequest, name: str) -> HttpResponse:
    file = Path(os.environ["HELIX_TEST_BUNDLES"]) / f"{name}.js"
    return HttpResponse(file.read_bytes(), content_type="text/javascript")


urlpatterns = [
    path("pages/<slug:name>/", page),
    path("bundles/<slug:name>.js", bundle),
    *project_urls,
]
