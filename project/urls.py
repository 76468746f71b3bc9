"""Addresses of the demo project."""

from importlib.util import find_spec

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularRedocView, SpectacularSwaggerView

from project.views import HAS_API, document, home
from project.watch import sessions, watch

urlpatterns: list[URLPattern | URLResolver] = [
    path("", home, name="home"),
    path("docs/<path:name>", document, name="document"),
    path("admin/", admin.site.urls),
    path("health/", include("helix_sessions.health")),
]
if find_spec("prometheus_client"):
    from helix_sessions.metrics import metrics

    urlpatterns.append(path("metrics", metrics, name="metrics"))
if HAS_API:
    urlpatterns += [
        path("api/", include("helix_sessions.api.urls")),
        path("watch/", sessions, name="sessions"),
        path("watch/<helix_id:session_id>/", watch, name="watch"),
        path("schema/", SpectacularAPIView.as_view(), name="schema"),
        path("schema/swagger/", SpectacularSwaggerView.as_view(), name="swagger"),
        path("schema/redoc/", SpectacularRedocView.as_view(template_name="redoc.html"), name="redoc"),
    ]
