"""Failed logins: counted by address, and refused for a while when there are too many.

Counts are in Django's default cache; several processes need a shared one. The address is the one that
connected, or what `REST_FRAMEWORK["NUM_PROXIES"]` says of proxies in front: a header that anybody can send is
not believed.
"""

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.signals import user_login_failed
from django.core.cache import cache
from django.core.exceptions import PermissionDenied
from django.dispatch import receiver
from django.http import HttpRequest
from rest_framework.throttling import BaseThrottle

TOKENS = 30
"""Tokens that do not fit, from one address in `SECONDS`."""

PASSWORDS = 10
"""Passwords that do not fit, for one name from one address in `SECONDS`."""

SECONDS = 60


def _key(request: Any, what: str) -> str:
    address = BaseThrottle().get_ident(request)
    return f"failed_{what.encode()[:200].hex()}_{address}"


def are_too_many(request: Any, what: str, most: int) -> bool:
    """Whether so many have failed lately."""
    return int(cache.get(_key(request, what), 0)) >= most


def count(request: Any, what: str) -> None:
    """One more has failed."""
    key = _key(request, what)
    cache.add(key, 0, SECONDS)
    try:
        cache.incr(key)
    except ValueError:  # forgotten in between
        cache.set(key, 1, SECONDS)


class GuardedBackend(ModelBackend):
    """Django's users and passwords; after too many wrong ones not even the right one is taken for a while."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> Any:
        if request is not None and are_too_many(request, f"password {username}", PASSWORDS):
            raise PermissionDenied
        return super().authenticate(request, username=username, password=password, **kwargs)


@receiver(user_login_failed)
def _count_password(
    sender: Any, credentials: dict[str, Any], request: HttpRequest | None = None, **kwargs: Any
) -> None:
    if request is not None:
        count(request, f"password {credentials.get('username')}")
