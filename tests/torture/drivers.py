"""Processes that own sessions by lease, and processes that send and promote inputs."""

from datetime import datetime, timedelta
from typing import Any

from django.db import connections

from helix_sessions.store.runs.leases import clock
from helix_sessions.types import InputReceipt
from tests.torture.callers import Caller, Made
from tests.torture.linearizability import Operation

SECONDS = (0.002, 0.01, 0.05, 3600)
"""Of a lease: some are over before the next call, one outlasts every history."""
_NEED_A_LEASE = ("renew_lease", "release_lease")


class Sender(Caller):
    """Sends inputs under ids that others use as well, as `steer` and as `queue`."""

    deliveries: tuple[str, ...] = ("steer", "queue")

    def _input_id(self) -> str:
        return f"{self.session} {self.choice.randrange(20)}"

    def _admit_input(self) -> Made:
        name, how = self._input_id(), self.choice.choice(self.deliveries)
        prompt = self.choice.choice(["one", "one", "one", "two"])

        def admit() -> Any:
            return _told(
                self.store.admit_input(self.session, prompt, input_id=name, delivery=how, resume=False)
            )

        return {"input_id": name, "prompt": prompt, "delivery": how}, admit

    def _cancel_input(self) -> Made:
        name = self._input_id()
        return {"input_id": name}, lambda: _told(self.store.cancel_input(self.session, name))

    def _set_delivery(self) -> Made:
        name, how = self._input_id(), self.choice.choice(self.deliveries)
        given = {"input_id": name, "delivery": how}
        return given, lambda: _told(self.store.set_delivery(self.session, name, how))

    def _promote_inputs(self) -> Made:
        mode, writer = self.choice.choice(self.deliveries), self.writer
        promote = lambda: tuple(map(_told, writer.promote_inputs(self.session, mode)))  # noqa: E731
        return {"mode": mode, **self.held}, promote

    def _list_inputs(self) -> Made:
        pending = self.choice.random() < 0.5
        inputs = lambda: tuple(map(_told, self.store.list_inputs(self.session, pending=pending)))  # noqa: E731
        return {"pending": pending}, inputs

    def _count_inputs(self) -> Made:
        def count() -> Any:
            counts = self.store.count_inputs(self.session)
            return counts["steer"], counts["queue"]

        return {}, count

    def _get_occupancy(self) -> Made:
        given: dict[str, Any] = {}

        def look() -> Any:
            since = self._clock()
            seen = self.store.get_occupancy(self.session)
            given["now"] = self._clock() if seen.owner is None else since
            return seen.owner, seen.pending_inputs, seen.idle

        return given, look

    def _clock(self) -> datetime:
        return clock(connections[self.store.using])


class Driver(Sender):
    """Takes a lease, works under it, and now and then does not notice that it is over.

    What it says of the time of a call is the moment its answer tells of, if that lies within the call.
    Where the answer tells of none, it is the end of the call that explains it best: a lease that was live
    at any moment of it was so at the first, one that was over was so at the last.
    """

    deliveries = ("queue",)  # one input a promotion: if that is refused, nothing was promoted

    def make(self, call: str) -> Operation:
        if self.lease is None and (call in _NEED_A_LEASE or self.choice.random() < 0.5):
            call = "acquire_lease"
        made = super().make(call)
        over = made.result == "Fenced" or call == "release_lease"
        if over and self.choice.random() < 0.5:
            self.lease = None
        return made

    def _ttl(self) -> timedelta:
        return timedelta(seconds=self.choice.choice(SECONDS))

    def _acquire_lease(self) -> Made:
        owner = f"owner {self.lane // 2}"  # two lanes may be one owner
        given: dict[str, Any] = {"owner": owner, "ttl": self._ttl()}

        def acquire() -> Any:
            given["now"] = since = self._clock()
            lease = self.store.acquire_lease(self.session, owner, given["ttl"].total_seconds())
            given["now"] = _within(since, lease.expires_at - given["ttl"], self._clock())
            self.lease = lease
            return "ok", lease.fence, lease.expires_at

        return given, acquire

    def _renew_lease(self) -> Made:
        lease, given = self.lease, {"ttl": self._ttl(), **self.held}
        assert lease is not None

        def renew() -> Any:
            given["now"] = since = self._clock()
            renewed = self.store.renew_lease(lease, given["ttl"].total_seconds())
            given["now"] = _within(since, renewed.expires_at - given["ttl"], self._clock())
            return "ok", renewed.fence, renewed.expires_at

        return given, renew

    def _release_lease(self) -> Made:
        lease = self.lease
        assert lease is not None

        def release() -> Any:
            self.store.release_lease(lease)
            return "ok"

        return self.held, release

    def _get_lease(self) -> Made:
        def get() -> Any:
            lease = self.store.get_lease(self.session)
            return None if lease is None else (lease.owner, lease.fence, lease.expires_at)

        return {}, get


def _within(since: datetime, moment: datetime, until: datetime) -> datetime:
    return max(since, min(moment, until))


def _told(receipt: InputReceipt) -> tuple[Any, ...]:
    return receipt.input_id, receipt.delivery, receipt.admitted_seq, receipt.promoted_seq
