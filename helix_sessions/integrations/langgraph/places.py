"""Where a thread's documents are: the keys of its notes."""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from helix_sessions.exceptions import InvalidInput

DESKS = "h|"
"""The beginning of the keys of all desks."""


class Place(NamedTuple):
    """What a config points at."""

    thread: str
    namespace: str
    checkpoint: str | None


def place_of(config: Mapping[str, Any]) -> Place:
    """The thread, namespace and checkpoint of a LangGraph config."""
    configurable = config.get("configurable", {})
    if configurable.get("thread_id") is None:
        raise InvalidInput('The config needs a "thread_id" under "configurable".')
    checkpoint = configurable.get("checkpoint_id")
    return Place(
        str(configurable["thread_id"]),
        str(configurable.get("checkpoint_ns") or ""),
        str(checkpoint) if checkpoint else None,
    )


def checkpoints(namespace: str | None = None) -> str:
    """The beginning of the keys of checkpoints, of one namespace or of all."""
    return "c|" if namespace is None else f"c|{_short(namespace)}|"


def checkpoint(namespace: str, checkpoint_id: str) -> str:
    return f"c|{_short(namespace)}|{_safe(checkpoint_id)}"


def checkpoint_of(key: str) -> str:
    """The id of the checkpoint that is kept under a key."""
    return key.rsplit("|", 1)[1].replace("%7C", "|").replace("%25", "%")


def desk(namespace: str) -> str:
    """Where the newest checkpoint of a namespace is."""
    return f"{DESKS}{_short(namespace)}"


def writes(namespace: str, checkpoint_id: str) -> str:
    """The beginning of the keys of pending writes that are not with their checkpoint."""
    return f"w|{_short(namespace)}|{_safe(checkpoint_id)}|"


def task_writes(namespace: str, checkpoint_id: str, task: str, special: int | None) -> str:
    return f"{writes(namespace, checkpoint_id)}{_safe_task(task)}|{'' if special is None else special}"


def items(namespace: str, channel: str) -> str:
    """The beginning of the keys of the items of a list channel."""
    return f"i|{_short(namespace)}|{_digest(channel)}|"


def item(namespace: str, channel: str, number: int) -> str:
    return f"{items(namespace, channel)}{number:010d}"


def _short(namespace: str) -> str:
    return _digest(namespace) if namespace else ""


def _safe(part: str) -> str:
    return part.replace("%", "%25").replace("|", "%7C")


def _safe_task(task: str) -> str:
    return task.replace("|", "%7C")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]
