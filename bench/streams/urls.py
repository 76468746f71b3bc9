from django.urls import include, path

urlpatterns = [path("api/", include("helix_sessions.api.urls"))]
