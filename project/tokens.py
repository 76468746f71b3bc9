"""Tokens for the API: made once, shown once, stored as a digest.

A token has 256 random bits, so a plain SHA-256 cannot be turned back and needs no salt.
"""

import secrets
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, Throttled
from rest_framework.request import Request

from project import attempts
from project.models import ApiToken

_PREFIX = "helix_"
_SHOWN = len(_PREFIX) + 6
_LAST_USED_PRECISION = timedelta(hours=1)


def _digest(token: bytes) -> str:
    return sha256(token).hexdigest()


def create_token(user: Any, name: str, expires_at: datetime | None = None) -> str:
    """Make a token; this is the only time it can be seen."""
    token = _PREFIX + secrets.token_urlsafe(32)
    ApiToken.objects.create(
        user=user, name=name, prefix=token[:_SHOWN], digest=_digest(token.encode()), expires_at=expires_at
    )
    return token


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer <token>`."""

    def authenticate(self, request: Request) -> tuple[Any, ApiToken] | None:
        scheme, _, given = get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        token = ApiToken.objects.select_related("user").filter(digest=_digest(given.strip())).first()
        now = timezone.now()
        if token is None or not token.user.is_active or (token.expires_at and token.expires_at <= now):
            if attempts.are_too_many(request, "token", attempts.TOKENS):
                raise Throttled(attempts.SECONDS)
            attempts.count(request, "token")
            raise AuthenticationFailed("The token is not valid.")
        if token.last_used_at is None or token.last_used_at < now - _LAST_USED_PRECISION:
            ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema names it."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}
