"""When a call that failed is made again."""

import random
from datetime import datetime, timedelta

from django.utils import timezone

from helix_sessions.exceptions import TransientError
from helix_sessions.types import RetryPolicy

IN_PLACE_SECONDS = 5.0
"""Shorter waits are made by the driver; for longer ones the session is given back until they are over."""


class CallTimedOut(TimeoutError):
    """A call took longer than it may."""


def is_transient(error: BaseException, policy: RetryPolicy) -> bool:
    """Whether the same call may work later."""
    return isinstance(error, (TransientError, TimeoutError, *policy.retry_on))


def delay(error: BaseException, policy: RetryPolicy, attempt: int) -> float | None:
    """Seconds to wait after the failure of this attempt, counted from 1; `None`: it was the last."""
    if attempt >= policy.max_attempts or not is_transient(error, policy):
        return None
    wait = min(policy.initial * policy.factor ** (attempt - 1), policy.maximum)
    wait *= 1 + policy.jitter * random.uniform(-1, 1)  # noqa: S311 - no secret
    asked = getattr(error, "retry_after", None)
    if isinstance(asked, int | float) and not isinstance(asked, bool) and asked > 0:
        wait = max(wait, float(asked))
    return wait


def moment(seconds: float) -> datetime:
    return timezone.now() + timedelta(seconds=seconds)
