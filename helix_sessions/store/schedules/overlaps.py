"""Whether a firing is under way: its input is pending, or the work that it began runs or waits."""

from helix_sessions import models
from helix_sessions.types import TERMINAL_STATUSES

_SUSPENDED = "suspended_"


def is_under_way(using: str, firing: models.ScheduleFiring) -> bool:
    """Whether the firing is pending, running or waiting. What else its session does is not looked at."""
    key = {"session_id": firing.session_id}
    given = models.Input.objects.using(using).filter(**key, input_id=firing.input_id).first()
    session = models.Session.objects.using(using).filter(**key).only("status").first()
    if given is None or session is None or given.cancelled_seq is not None:
        return False
    if given.promoted_seq is None:
        return True
    runs = models.Run.objects.using(using).filter(**key).order_by("turn")
    began = runs.filter(start_sequence__lte=given.promoted_seq).last()
    if began is None:  # it was promoted by hand
        return False
    # A suspended run goes on as another one, up to the first that ends.
    statuses = runs.filter(turn__gte=began.turn).values_list("status", flat=True)
    last = next((status for status in statuses if not status.startswith(_SUSPENDED)), None)
    if last is None:
        return session.status not in TERMINAL_STATUSES
    return last == "running"
