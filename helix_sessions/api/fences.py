"""`Helix-Fence`: a write that is made under a lease, and refused once the lease is not the newest."""

from rest_framework.exceptions import ParseError
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from helix_sessions.api.scoping import store_for
from helix_sessions.exceptions import Fenced
from helix_sessions.store.engine.inputs import MAX_INTEGER
from helix_sessions.types import Lease

HEADER = "Helix-Fence"
NEEDED = f"The header {HEADER} says under which lease it is."


def fence_of(request: Request) -> int | None:
    """The fence of the request, if it has one."""
    given = request.headers.get(HEADER)
    if given is None:
        return None
    text = given.strip()
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_INTEGER):
        raise ParseError(f"{HEADER} is the number that the lease was answered with.")
    return int(text)


def lease_of(request: Request, session_id: str | None) -> Lease | None:
    """The session's lease, if the request writes under it; another fence is `Fenced`."""
    fence = fence_of(request)
    if fence is None or session_id is None or request.method in SAFE_METHODS:
        return None
    lease = store_for(request).get_lease(session_id)
    if lease is None or lease.fence != fence:
        raise Fenced(f"The fence {fence} is not that of the newest lease of {session_id!r}.")
    return lease
