"""The list of tasks an agent keeps in the session's metadata."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from helix_sessions.exceptions import InvalidInput
from helix_sessions.values.agents import AgentSession

MOST_TASKS = 20
STATUSES = ("pending", "in_progress", "completed")
_KEYS = {"content", "status", "active_form"}


@dataclass(frozen=True, slots=True)
class UpdateTask:
    """Replace the list: at most 20 tasks, at most one of them in progress."""

    tasks: tuple[dict[str, Any], ...]
    """Each `{"content", "status", "active_form"}`; the status is `pending`, `in_progress` or `completed`."""

    def __init__(self, tasks: Iterable[Mapping[str, Any]]) -> None:
        if isinstance(tasks, str | Mapping) or not isinstance(tasks, Iterable):
            raise InvalidInput("Tasks must be a list of objects.")
        checked = tuple(_checked(task) for task in tasks)
        if len(checked) > MOST_TASKS:
            raise InvalidInput(f"There are {len(checked)} tasks; {MOST_TASKS} are allowed.")
        if sum(task["status"] == "in_progress" for task in checked) > 1:
            raise InvalidInput("Only one task may be in progress.")
        object.__setattr__(self, "tasks", checked)

    def execute_on(self, session: AgentSession) -> AgentSession:
        return session.with_metadata("tasks", [dict(task) for task in self.tasks])


def _checked(task: Any) -> dict[str, Any]:
    if not isinstance(task, Mapping):
        raise InvalidInput(f"A task must be an object, not {type(task).__name__}.")
    unknown = [str(key) for key in task if key not in _KEYS]
    if unknown:
        raise InvalidInput(f"A task has no {unknown[0]!r:.80}.")
    content, active_form = task.get("content"), task.get("active_form")
    if not isinstance(content, str) or not content.strip():
        raise InvalidInput("A task needs a content.")
    if active_form is not None and not isinstance(active_form, str):
        raise InvalidInput("The active_form of a task must be a string.")
    if task.get("status") not in STATUSES:
        raise InvalidInput(f"The status of a task must be one of {', '.join(STATUSES)}.")
    return dict(task)
