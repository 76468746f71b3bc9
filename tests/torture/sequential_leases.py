"""Leases as a sequential machine.

Time is an argument: `now` is the moment the call says it was made, as its caller worked it out.
"""

from dataclasses import replace

from tests.torture.rows import Answer, Given, Row


def _acquire(row: Row, given: Given) -> Answer:
    owner, now = given["owner"], given["now"]
    if row.owner not in (None, owner) and row.expires_at > now:
        return row, ("LeaseHeld", row.owner, row.expires_at)
    fence = row.fence + (row.owner != owner)
    after = replace(row, owner=owner, fence=fence, expires_at=now + given["ttl"])
    return after, ("ok", after.fence, after.expires_at)


def _renew(row: Row, given: Given) -> Answer:
    after = replace(row, expires_at=given["now"] + given["ttl"])
    return after, ("ok", after.fence, after.expires_at)


def _release(row: Row, given: Given) -> Answer:
    return replace(row, owner=None, expires_at=None), "ok"


def _get(row: Row, given: Given) -> Answer:
    return row, None if row.owner is None else (row.owner, row.fence, row.expires_at)


def _occupancy(row: Row, given: Given) -> Answer:
    live = row.owner is not None and row.expires_at > given["now"]
    idle = not (live or row.pending)
    return row, (row.owner if live else None, len(row.pending), idle)


LEASE_CALLS = {"acquire_lease", "renew_lease", "release_lease", "get_lease", "get_occupancy"}
MEANINGS = {
    "acquire_lease": _acquire,
    "renew_lease": _renew,
    "release_lease": _release,
    "get_lease": _get,
    "get_occupancy": _occupancy,
}
"""`renew_lease` and `release_lease` are made under a lease, as every other write of a driver: a stale one
is refused before it comes to these."""
