"""When a call that failed is made again."""

import math
import random
from datetime import datetime, timedelta

from django.utils import timezone

from helix_sessions.exceptions import TransientError
from helix_sessions.types import RetryPolicy

IN_PLACE_SECONDS = 5.0
"""Shorter waits are made by the driver; for longer ones the session is given back until they are over."""

LONGEST_SECONDS = 31 * 24 * 3600.0
"""No wait is longer, whatever the other side asks for."""


class CallTimedOut(TimeoutError):
    """A call took longer than it may."""


def is_transient(error: BaseException, policy: RetryPolicy) -> bool:
    """Whether the same call may work later."""
    return isinstance(error, (TransientError, TimeoutError, *policy.retry_on))


def delay(error: BaseException, policy: RetryPolicy, attempt: int) -> float | None:
    """Seconds to wait after the failure of this attempt, counted from 1; `None`: it was the last."""
    if attempt >= policy.max_attempts or not is_transient(error, policy):
        return None
    wait = backoff(policy, attempt)
    wait *= 1 + policy.jitter * random.uniform(-1, 1)  # noqa: S311 - no secret
    return min(max(wait, asked_for(error)), LONGEST_SECONDS)


def backoff(policy: RetryPolicy, attempt: int) -> float:
    """Seconds that a policy has between the failure of this attempt and the next."""
    try:
        return min(policy.initial * float(policy.factor) ** (attempt - 1), policy.maximum)
    except OverflowError:
        return policy.maximum if policy.initial else 0.0


def asked_for(error: BaseException) -> float:
    """Seconds that the other side asks for, as far as that is a number."""
    asked = getattr(error, "retry_after", None)
    if not isinstance(asked, int | float) or not 0 < asked < math.inf:
        return 0.0
    return float(min(asked, LONGEST_SECONDS))


def moment(seconds: float) -> datetime:
    return timezone.now() + timedelta(seconds=seconds)
