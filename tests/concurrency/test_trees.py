"""Many hands on one tree, three levels deep: nobody waits in a circle, and what was told holds.

`HELIX_TREE_SECONDS` makes it longer, `HELIX_TREE_SEED` repeats a run.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from random import Random, randrange

import pytest

from helix_sessions.exceptions import HelixSessionsError, SessionBusy, StoreUnavailable
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.types import SubSessionRef
from tests.contract.suspended import asked, calling, wait_for
from tests.invariants import assert_healthy, assert_invariants
from tests.parallel import run_threads

pytestmark = pytest.mark.django_db(transaction=True)

HANDS = 6


class Hand:
    """One caller that does to the tree whatever comes to mind."""

    def __init__(self, seed: int, adopt: bool) -> None:
        self.chance = Random(seed)
        self.store = SessionStore()
        self.adopt = adopt
        self.done: Counter[str] = Counter()
        self.trouble: list[str] = []

    def work(self, until: float) -> None:
        acts = [getattr(self, name) for name in dir(self) if name.startswith("act_")]
        while time.monotonic() < until:
            act = self.chance.choice(acts)
            try:
                act(self.somebody())
            except (SessionBusy, StoreUnavailable) as error:
                if "was replaced meanwhile" not in str(error):  # deleted and made again, as it may be
                    self.trouble.append(f"{act.__name__}: {error.__cause__ or error}")
            except HelixSessionsError as error:
                self.done[f"{act.__name__} refused: {error.code}"] += 1
            else:
                self.done[act.__name__] += 1

    def somebody(self) -> str:
        return self.chance.choice(["r", "r/a", "r/b", "r/a/x", "r/a/y", "r/b/x", "r/b/y"])

    def below(self, key: str) -> list[str]:
        names = {1: ["a", "b"], 2: ["x", "y"]}.get(len(key.split("/")), [])
        return [f"{key}/{name}" for name in names]

    def act_create(self, key: str) -> None:
        """A session and its reference; every second child is a companion."""
        parent = key.rpartition("/")[0] or None
        self.store.create_session(key, agent_type="a", parent_session_id=parent)
        if parent is not None:
            mode = "persistent" if key.endswith(("b", "y")) else "ephemeral"
            ref = SubSessionRef(sub_session_id=key, agent_type="a", mode=mode, parent_tool_call_id=key)
            self.store.add_sub_session_refs(parent, [ref])

    act_create_again = act_create_once_more = act_create

    def act_begin(self, key: str) -> None:
        if self.store.session_exists(key):
            self.store.begin_turn(key, message="go on", agent_type="a")

    act_begin_again = act_begin

    def act_suspend(self, key: str) -> None:
        run = self.store.get_current_run(key)
        if run is None:
            return self.act_begin(key)
        calls = [asked(f"{key}!{run.turn}")]
        waits = [
            wait_for(f"{name}!{run.turn}", name) for name in self.below(key) if self.chance.random() < 0.6
        ]
        said = calling(calls[0].tool_call_id, *(wait.parent_tool_call_id for wait in waits))
        self.store.suspend(
            key,
            "client_tool",
            state=self.store.load_state(key),
            run_id=run.run_id,
            append_messages=[said],
            pending_calls=calls,
            awaiting_children=waits,
        )

    act_suspend_again = act_suspend

    def act_submit(self, key: str) -> None:
        pending = self.store.load_state(key).pending_client_tool_calls or {}
        for call_id in pending:
            root = self.chance.choice([key, "r"])
            self.store.submit_tool_result(root, call_id, result=self.chance.random())

    act_submit_again = act_submit

    def act_settle(self, key: str) -> None:
        self.store.settle_child(key, self.chance.choice(["completed", "failed"]), output=1)

    def act_resume(self, key: str) -> None:
        self.store.resume(key)

    act_resume_again = act_resume_once_more = act_resume

    def act_rewind(self, key: str) -> None:
        self.store.rewind(key)

    def act_wake(self, key: str) -> None:
        self.store.wake(key)

    def act_move(self, key: str) -> None:
        self.store.move_session(key, {"at": self.chance.random()})

    def act_append(self, key: str) -> None:
        self.store.append_messages(key, [{"role": "user", "content": "hello"}])

    def act_expire(self, key: str) -> None:
        self.store.settle_expired_calls()

    def act_delete(self, key: str) -> None:
        if self.chance.random() < 0.15 * len(key.split("/")):
            self.store.delete_session(key)

    def act_adopt(self, key: str) -> None:
        """A reference to a session of elsewhere in the tree, or above."""
        if self.adopt:
            other = self.somebody()
            self.store.add_sub_session_refs(key, [SubSessionRef(sub_session_id=other, agent_type="a")])


def together(seed: int, seconds: float, *, adopt: bool) -> tuple[Counter[str], list[str]]:
    hands = [Hand(seed * 100 + number, adopt) for number in range(HANDS)]
    first = Hand(seed, False)
    for key in Session.objects.values_list("session_id", flat=True):
        first.store.delete_session(key)
    for key in ("r", "r/a", "r/b", "r/a/x", "r/a/y", "r/b/x", "r/b/y"):
        first.act_create(key)
    until = time.monotonic() + seconds
    outcomes = run_threads(HANDS, lambda index: hands[index].work(until))
    assert outcomes == [None] * HANDS, (seed, outcomes)
    for key in Session.objects.values_list("session_id", flat=True):
        assert_invariants(key)
    assert_healthy(*Session.objects.values_list("session_id", flat=True))
    return sum((hand.done for hand in hands), Counter()), [said for hand in hands for said in hand.trouble]


def seeds() -> Iterator[int]:
    seed = int(os.environ.get("HELIX_TREE_SEED") or randrange(10**6))
    while True:
        yield seed
        seed += 1


def test_of_callers_in_one_tree_nobody_waits_in_a_circle() -> None:
    end = time.monotonic() + float(os.environ.get("HELIX_TREE_SECONDS") or 3)
    done: Counter[str] = Counter()
    for seed in seeds():
        some, trouble = together(seed, 3, adopt=False)
        assert trouble == [], seed
        done += some
        if time.monotonic() > end:
            break
    for name in ("suspend", "submit", "settle", "resume", "rewind", "wake", "move", "delete", "create"):
        assert sum(done[f"act_{name}{more}"] for more in ("", "_again", "_once_more")), (name, done)


DEADLOCKS = ("deadlock detected", "involved in a distributed deadlock")
"""What PostgreSQL says of one, and what Citus does."""


def test_references_in_circles_make_callers_busy_and_lose_nothing() -> None:
    """References may lead anywhere, also upwards, so two deletions may meet from both ends. The database ends
    the wait, one of them is told to try again, and every session is whole."""
    for seed, _ in zip(seeds(), range(2), strict=False):
        done, trouble = together(seed, 2, adopt=True)
        assert done["act_delete"], (seed, done)
        assert [said for said in trouble if not any(words in said for words in DEADLOCKS)] == [], seed
