"""Leases, for drivers in any language. Writes carry the fence of their lease in `Helix-Fence`."""

from django.http import HttpResponse
from rest_framework.exceptions import ParseError
from rest_framework.request import Request

from helix_sessions.api import examples, fences
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.outputs import HeldLease
from helix_sessions.api.responses import json_response, no_content
from helix_sessions.api.schema import operation
from helix_sessions.api.serializers.turns import LeaseInput
from helix_sessions.api.views.base import View
from helix_sessions.exceptions import Fenced
from helix_sessions.types import Lease


class LeaseView(View):
    @operation(
        "acquire_lease",
        tag="leases",
        request=LeaseInput,
        sent={"owner": "worker-1", "ttl": 30},
        response=HeldLease,
        status=201,
        example=examples.LEASE,
        etag=False,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Take the right to drive a session, or extend it, if it is this owner's.

        409 `lease_held` while another owner's is live.
        """
        given = self.input(LeaseInput)
        return _answer(self.store.acquire_lease(session_id, given["owner"], given["ttl"]), status=201)

    @operation(
        "renew_lease",
        tag="leases",
        request=LeaseInput,
        sent={"owner": "worker-1", "ttl": 30},
        response=HeldLease,
        example=examples.LEASE,
        etag=False,
        fence=True,
    )
    def put(self, request: Request, session_id: str) -> HttpResponse:
        """Let a lease run `ttl` seconds from now. 409 `fenced` once it is not the newest."""
        given = self.input(LeaseInput)
        lease = self._held(session_id)
        if lease.owner != given["owner"]:
            raise Fenced(f"The lease of {session_id!r} is held by another owner.")
        return _answer(self.store.renew_lease(lease, given["ttl"]))

    @operation("release_lease", tag="leases", status=204, etag=False, fence=True)
    def delete(self, request: Request, session_id: str) -> HttpResponse:
        """Give a lease back. Its holder is fenced from then on."""
        self.store.release_lease(self._held(session_id))
        return no_content()

    def _held(self, session_id: str) -> Lease:
        lease = fences.lease_of(self.request, session_id)
        if lease is None:
            self.store.get_session_head(session_id)
            raise ParseError(fences.NEEDED)
        return lease


def _answer(lease: Lease, *, status: int = 200) -> HttpResponse:
    held = HeldLease(
        session_id=lease.session_id, owner=lease.owner, fence=lease.fence, expires_at=lease.expires_at
    )
    return json_response(held, status=status)
