"""Stream tickets: a signed, short-lived, read-only address of one session's stream.

A browser's `EventSource` sends no headers. A page asks for a ticket with its login, and opens the stream with
the address. A ticket opens nothing but the stream of its session, for the user who asked for it.
"""

from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core import signing
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

PARAMETER = "ticket"
LIFETIME = timedelta(minutes=5)
"""Long enough for a page to open the stream, and to come back after a short loss of the network."""

_SALT = "helix_sessions.stream.ticket"


def issue(user: Any, session_id: str) -> tuple[str, datetime]:
    """A ticket for the stream of this session, and until when it opens it."""
    ticket = signing.dumps([str(user.pk), session_id], salt=_SALT)
    return ticket, timezone.now() + LIFETIME


class TicketAuthentication(BaseAuthentication):
    """The user of the ticket in the address, if there is one."""

    def authenticate(self, request: Request) -> tuple[Any, None] | None:
        """An invalid ticket is an error, not an anonymous user."""
        ticket = request.query_params.get(PARAMETER)
        if ticket is None:
            return None
        age = None if getattr(request._request, "helix_ticket_admitted", False) else LIFETIME
        try:
            key, session_id = signing.loads(ticket, salt=_SALT, max_age=age)
        except signing.BadSignature:
            raise AuthenticationFailed("The ticket is not valid any more.") from None
        view: Any = request.parser_context["view"] if request.parser_context else None
        if view is None or view.kwargs.get("session_id") != session_id:
            raise AuthenticationFailed("The ticket is for another session.")
        user = get_user_model()._default_manager.filter(pk=key, is_active=True).first()
        if user is None:
            raise AuthenticationFailed("The user of the ticket is not active.")
        return user, None

    def authenticate_header(self, request: Request) -> str:
        return "Ticket"
