"""The demo's visitor: a user who needs no password, on this machine and while debugging, and nowhere else."""

from ipaddress import ip_address
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model, login
from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.models import Permission
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

USERNAME = "visitor"

_SEES = (
    *("view_session", "view_toolrule", "view_memory", "view_webhook"),
    *("view_schedule", "view_spendlimit", "view_auditentry"),
)
_DOES = ("run_session", "retry_session", "interrupt_session", "resume_session", "branch_session")
"""What the visitor may do in the admin, beside looking."""


class VisitorBackend(BaseBackend):
    """A visitor without a password has an account only while the project is debugged. It does not log in."""

    def get_user(self, user_id: Any) -> Any:
        users = get_user_model()._default_manager
        return users.filter(pk=user_id, is_active=True).first() if settings.DEBUG else None


def is_at_home(request: HttpRequest) -> bool:
    """Whether the request comes from this machine, and the project is debugged."""
    try:
        return settings.DEBUG and ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False


@require_POST
def enter(request: HttpRequest) -> HttpResponse:
    """Log in as the visitor. The page does it by itself, with its CSRF token."""
    if not is_at_home(request):
        raise PermissionDenied
    if not request.user.is_authenticated:
        login(request, _visitor(), backend="project.visitors.VisitorBackend")
    return redirect("home")


def _visitor() -> Any:
    users = get_user_model()._default_manager
    user: Any = users.filter(username=USERNAME).first()
    if user is None:
        user = get_user_model().objects.create_user(username=USERNAME, is_staff=True)
    permissions = Permission.objects.filter(
        content_type__app_label="helix_sessions", codename__in=(*_SEES, *_DOES)
    )
    user.user_permissions.set(permissions)
    return user
