"""Addresses of the demo project."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from project.views import HAS_API, document, home

urlpatterns: list[URLPattern | URLResolver] = [
    path("", home, name="home"),
    path("docs/<path:name>", document, name="document"),
    path("admin/", admin.site.urls),
]
if HAS_API:
    urlpatterns.append(path("api/", include("helix_sessions.api.urls")))
