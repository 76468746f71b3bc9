"""Addresses below the API that there are not: a problem like any other, and no page of the project."""

from contextvars import ContextVar
from typing import Any

from django.urls import (
    NoReverseMatch,
    Resolver404,
    ResolverMatch,
    URLPattern,
    get_script_prefix,
    resolve,
    reverse,
)
from rest_framework.exceptions import NotFound
from rest_framework.request import Request

from helix_sessions.api.views.base import View


class UnknownView(View):
    """An address below ours that there is not."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Answer 404 to an authenticated user."""
        self.perform_authentication(request)
        self.check_permissions(request)
        raise NotFound("There is no such address.")


_asking: ContextVar[bool] = ContextVar("helix_sessions_unclaimed", default=False)


class Unclaimed(URLPattern):
    """Matches what is unknown below the prefix of the API: to us and to the project, which may have
    addresses of its own there, after ours. Without a prefix all of these are the project's.
    """

    def resolve(self, path: str) -> ResolverMatch | None:
        """As any pattern, if the URL conf has nothing else."""
        if _asking.get():
            return None
        match = super().resolve(path)
        return None if match is None or _is_of_the_project(path) else match


def _is_of_the_project(rest: str) -> bool:
    """Whether the project has this address, also where Django would append the last slash."""
    try:
        prefix = reverse("helix_sessions:root").removeprefix(get_script_prefix())
    except NoReverseMatch:
        return True
    token = _asking.set(True)
    try:
        return not prefix or any(_is_there(f"/{prefix}{rest}{end}") for end in ("", "/"))
    finally:
        _asking.reset(token)


def _is_there(path: str) -> bool:
    try:
        resolve(path)
    except Resolver404:
        return False
    return True
