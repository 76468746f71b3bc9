"""Code review: one done and branched, one that failed, one that was stopped."""

from typing import Any

from helix_sessions.store import SessionStore
from project.sample.clock import Clock
from project.sample.models import CAREFUL, SMALL
from project.sample.story import Story


def tell(store: SessionStore, owner: Any, clock: Clock) -> None:
    """Three pull requests of one repository."""
    _branched(store, owner, clock)
    _failed(store, owner, clock)
    _stopped(store, owner, clock)


def _review(store: SessionStore, owner: Any, clock: Clock, number: int, title: str) -> Story:
    return Story(
        store,
        f"review-{number}",
        agent_type="reviewer",
        owner=owner,
        clock=clock,
        model=CAREFUL,
        tags=["code"],
        metadata={"repository": "shop/checkout", "pull_request": number, "title": title},
        custom_state={"files": [], "remarks": []},
    )


def _branched(store: SessionStore, owner: Any, clock: Clock) -> None:
    clock.go_to(days=6, hours=4)
    story = _review(store, owner, clock, 381, "Retry payments that time out")
    story.begin("Review pull request 381. Be kind and be precise.")
    story.use(
        "read_diff",
        {"pull_request": 381},
        {"files": ["payments/client.py", "payments/tests/test_client.py"], "added": 84, "removed": 11},
        writes=[{"op": "append", "path": ["files"], "values": ["payments/client.py"]}],
    )
    read = store.create_checkpoint(story.session_id, {"metadata": {"label": "diff read, nothing said yet"}})
    story.say(
        "`charge()` is retried after a time-out, but a time-out does not mean that the card was not charged. "
        "Please send an idempotency key with the first attempt and repeat it with the second.",
        writes=[
            {
                "op": "append",
                "path": ["remarks"],
                "values": [{"file": "payments/client.py", "line": 57, "kind": "bug"}],
            }
        ],
    )
    story.end(output={"remarks": 1})
    story.finish({"verdict": "changes requested"})

    branch = "review-381-second-opinion"
    store.clone_session("review-381", branch, checkpoint_id=read.checkpoint_id)
    store.patch_metadata(branch, {"reviewer": "security"})
    clock.wait(2400)
    run = store.create_run(branch, metadata={"model": SMALL.name})
    clock.wait(9.4)
    store.append_messages(
        branch,
        [
            {"role": "user", "content": "The same diff again, but look only at what an attacker could do."},
            {
                "role": "assistant",
                "content": "The retry logs the request body, card token included, on line 63.",
            },
        ],
    )
    usage = {
        "input_tokens": 8875,
        "output_tokens": 120,
        "cost": SMALL.cost(8875, 0, 120),
        "model": SMALL.name,
    }
    store.update_run_status(branch, run.run_id, "completed", step_count=1, usage=usage)


def _failed(store: SessionStore, owner: Any, clock: Clock) -> None:
    clock.go_to(days=3, hours=2)
    story = _review(store, owner, clock, 402, "Vendor the currency tables")
    story.begin("Review pull request 402.")
    story.use("read_diff", {"pull_request": 402}, {"files": ["data/currencies.json"], "added": 41200})
    message = "prompt is too long: 611000 tokens > 200000 maximum"
    story.stumble("BadRequestError", message, attempt=1, retry_in=None)
    story.fail("context_overflow", message, kind="BadRequestError")


def _stopped(store: SessionStore, owner: Any, clock: Clock) -> None:
    clock.go_to(days=1, hours=6)
    story = _review(store, owner, clock, 407, "Rename basket to cart")
    story.begin("Review pull request 407.")
    story.use("read_diff", {"pull_request": 407}, {"files": ["basket.py"], "added": 310, "removed": 310})
    clock.wait(95)
    store.set_interrupt_flag(story.session_id, "The pull request was closed.")
    request = store.check_interrupt_flag(story.session_id)
    reason = None if request is None else request.reason
    story.end(status="interrupted")
    store.update_status(story.session_id, "interrupted", interrupt_context={"reason": reason, "step": 1})
