"""The claim: a session becomes a driver's, its fence rises, and the attempt is counted, in one statement."""

import os
from collections.abc import Collection
from datetime import timedelta
from typing import Any

from helix_sessions import models
from helix_sessions.exceptions import LeaseHeld
from helix_sessions.messages.tool_ledger import ToolCall, calls_in, logged_call
from helix_sessions.store.driving.driver import Driver
from helix_sessions.store.engine import claiming, open_calls
from helix_sessions.store.engine.claiming import DUE, HAS_WORK, NAMED, Claimed, Wanted
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.runs import leases, runs
from helix_sessions.store.sessions import recover
from helix_sessions.types import Lease, Recovery, RecoveryPolicy


def claim_next(
    store: Store, owner: str, ttl: float, *, agent_types: Collection[str] | None = None
) -> Driver | None:
    """Take the session whose turn it is, of these agent types; `None`: there is none that may run."""
    if agent_types is not None and not agent_types:
        return None
    wanted = Wanted(
        owner=owner,
        token=os.urandom(8).hex(),
        ttl=timedelta(seconds=ttl),
        agent_types=claiming.types_of(agent_types),
        session_owner=store._owner,
    )
    claimed = claiming.claim(store.using, wanted)
    return None if claimed is None else _driver(store, claimed)


def claim_session(
    store: Store,
    session_id: str,
    owner: str,
    ttl: float,
    *,
    forced: bool = False,
    due: bool = False,
    bounded: bool = True,
) -> Driver | None:
    """Take a session: `forced` in any case, which is a request for a run; `due`, only if it is runnable; or
    else only if there is something to do. `None`: it is not taken. `LeaseHeld` while another owner's lease is
    live; `NoShare` while as many run at once as may, if it is `bounded`."""
    key = session_key(session_id)
    wanted = Wanted(
        owner=owner,
        token=os.urandom(8).hex(),
        ttl=timedelta(seconds=ttl),
        session_id=key,
        how=NAMED if forced else DUE if due else HAS_WORK,
        session_owner=store._owner,
        requested=forced,
        bounded=bounded,
    )
    while True:
        claimed = claiming.claim(store.using, wanted)
        if claimed is not None:
            return _driver(store, claimed)
        held = leases.get_lease(store, key)
        if held is not None and leases.is_lease_live(store, held):
            raise LeaseHeld(held.owner, held.expires_at)
        if not forced:
            return None


def recover_run(driver: Driver, policy: RecoveryPolicy, **how: Any) -> Recovery | None:
    """Settle the run that the owner before left running; see `SessionStore.recover_run`."""
    recovery = recover.recover_run(driver.store, driver.session_id, policy, **how)
    driver.reload()
    driver.run = None if recovery is None else recovery.run
    return recovery


def adopt_run(driver: Driver) -> None:
    """Go on with the run under way, which waited for its next attempt."""
    driver.run = runs.find(driver.using, driver.session_id, driver.known.row.run_id)


def owes_answer(driver: Driver) -> bool:
    """Whether the last run has ended without an answer to the end of the transcript."""
    last = driver.known.last_run
    if last is None or last.status == "completed":
        return False
    rows = models.Message.objects.using(driver.using).filter(session_id=driver.session_id).visible()
    message = rows.order_by("-position").first()
    if message is None:
        return False
    return message.role != "assistant" or bool(message.content.get("interrupted"))


def places_of(driver: Driver, call_ids: Collection[str]) -> dict[str, int]:
    """The numbers of the messages that made these calls, which are open."""
    found = open_calls.read(driver.known.row.open_calls)
    positions = {call.id: call.position for call in found if call.id in call_ids}
    rows = models.Message.objects.using(driver.using).filter(
        session_id=driver.session_id, position__in=set(positions.values()), truncated_seq=None
    )
    numbers = dict(rows.values_list("position", "seq"))
    return {call_id: numbers.get(position, position) for call_id, position in positions.items()}


def calls_left_open(driver: Driver, call_ids: Collection[str]) -> list[ToolCall]:
    """Open calls as they were executed: the transcript has them, the log the arguments they ran with."""
    positions = {call.position for call in open_calls.read(driver.known.row.open_calls)}
    rows = models.Message.objects.using(driver.using).filter(
        session_id=driver.session_id, position__in=positions, truncated_seq=None
    )
    found = list(rows.order_by("position"))
    ran = _arguments_since(driver, min((row.seq for row in found), default=0))
    made = [call for row in found for call in calls_in(row.content) if call["id"] in call_ids]
    return [
        {**call, "arguments": ran[call["id"]], "edited": ran[call["id"]] != call["arguments"]}
        if call["id"] in ran
        else call
        for call in made
    ]


def _arguments_since(driver: Driver, seq: int) -> dict[str, Any]:
    """The arguments of the calls that the log has after an event, the last of each id."""
    logged = models.Event.objects.using(driver.using).filter(
        session_id=driver.session_id, type="tool_called", seq__gt=seq
    )
    calls = [logged_call(event.data) for event in logged.order_by("seq")]
    return {call["id"]: call["arguments"] for call in calls if call and call["arguments"] is not None}


def _driver(store: Store, claimed: Claimed) -> Driver:
    row = claimed.row
    lease = Lease(
        session_id=row.session_id,
        owner=row.lease_owner,
        fence=row.fence,
        expires_at=row.lease_expires_at,
        token=row.lease_token,
    )
    return Driver(leases.fenced(store, lease), lease, row, owner_before=claimed.owner_before)
