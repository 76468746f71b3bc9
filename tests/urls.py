"""The demo project's addresses."""

from project.urls import urlpatterns

__all__ = ["urlpatterns"]
