"""Attachments of a session: the raw content goes in, a short-lived address comes out."""

from datetime import timedelta
from functools import cached_property
from typing import Any

from django.core import signing
from django.http import FileResponse, HttpResponse, HttpResponseBase
from django.utils import timezone
from rest_framework.exceptions import NotFound
from rest_framework.permissions import AllowAny
from rest_framework.request import Request

from helix_sessions.api import bodies, examples
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.outputs import BlobAddress
from helix_sessions.api.responses import json_response
from helix_sessions.api.schema import operation
from helix_sessions.api.views.base import View
from helix_sessions.conf import conf
from helix_sessions.content.blobs import OCTETS
from helix_sessions.store import SessionStore
from helix_sessions.types import Blob

LIFETIME = timedelta(minutes=5)
_SALT = "helix_sessions.blob"


class BlobsView(View):
    @cached_property
    def body(self) -> bytes:
        """The body, which may be as large as an attachment."""
        return bodies.read(self.request, conf.BLOB_MAX_BYTES, alone=True)

    @operation(
        "attach_blob",
        tag="blobs",
        request={"application/octet-stream": bytes},
        response=Blob,
        status=201,
        example=examples.BLOB,
        etag=False,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Attach a content to a session: the body as it is, of the media type in `Content-Type`.

        413 above `BLOB_MAX_BYTES`, 415 for a media type that is not in `BLOB_MEDIA_TYPES`.
        """
        media_type = (request.content_type or OCTETS).partition(";")[0].strip()
        blob = self.store.attach_blob(session_id, self.body, media_type=media_type)
        return json_response(blob, status=201)


class BlobView(View):
    @operation("get_blob", tag="blobs", response=BlobAddress, example=examples.BLOB_ADDRESS, etag=False)
    def get(self, request: Request, session_id: str, sha256: str) -> HttpResponse:
        """Get the address of an attachment that the session has, for a short time and without a login."""
        self.query()
        blob = self.store.get_blob(session_id, sha256)
        ticket = signing.dumps([session_id, blob.sha256], salt=_SALT)
        url = self.address("blob-content", ticket)
        address = BlobAddress(url=url, expires_at=timezone.now() + LIFETIME)
        return json_response(address, headers={"Cache-Control": "no-store"})


class BlobContentView(View):
    """Authorizes the holder of an address. An address that is not valid is 404."""

    authentication_classes = []
    permission_classes = [AllowAny]
    follows_project = False
    http_method_names = ["get", "head", "options"]

    def check_policy(self, request: Request, verb: str, session_id: str | None) -> None:
        """Ask the ticket alone."""

    @operation("download_blob", tag="blobs", response=bytes, etag=False, public=True)
    def get(self, request: Request, ticket: str) -> HttpResponseBase:
        """Download the content. It is never shown in place, and never taken for another type."""
        try:
            session_id, sha256 = signing.loads(ticket, salt=_SALT, max_age=LIFETIME)
        except (signing.BadSignature, ValueError):
            raise NotFound("There is no such address.") from None
        store = SessionStore(conf.API_DATABASE)
        blob = store.get_blob(session_id, sha256)
        return FileResponse(
            store.open_blob(sha256),
            as_attachment=True,
            filename=sha256,
            content_type=blob.media_type,
            headers=_HEADERS,
        )


_HEADERS: dict[str, Any] = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "private, no-store",
    "Referrer-Policy": "no-referrer",
}
