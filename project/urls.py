"""Addresses of the demo project."""

from importlib.util import find_spec

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularRedocView, SpectacularSwaggerView

from project import chat, visitors
from project.views import document, documents

urlpatterns: list[URLPattern | URLResolver] = [
    path("", chat.page, name="home"),
    path("admin/", admin.site.urls),
    path("api/", include("helix_sessions.api.urls")),
    path("chat/", chat.conversations, name="conversations"),
    path("chat/<helix_id:session_id>/", chat.page, name="chat"),
    path("chat/<helix_id:session_id>/branch/", chat.branch, name="branch"),
    path("docs/", documents, name="documents"),
    path("docs/<path:name>", document, name="document"),
    path("enter/", visitors.enter, name="enter"),
    path("health/", include("helix_sessions.health")),
    path("kill-worker/", chat.kill_worker, name="kill-worker"),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("schema/swagger/", SpectacularSwaggerView.as_view(), name="swagger"),
    path("schema/redoc/", SpectacularRedocView.as_view(template_name="redoc.html"), name="redoc"),
]
if find_spec("prometheus_client"):
    from helix_sessions.metrics import metrics

    urlpatterns.append(path("metrics", metrics, name="metrics"))
