"""What a config names, and the keys of the notes that a thread's documents are kept under.

`h|` is the head of a namespace, `c|` a checkpoint that has been followed by another, `w|` writes that are not
in their checkpoint's document, `i|` one item of a list.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from helix_sessions.exceptions import InvalidInput

HEADS = "h|"
CHECKPOINTS = "c|"
WRITES = "w|"
ITEMS = "i|"


class ReadId(str):
    """The id of a checkpoint that was read, which knows what had been put last in its namespace then.

    By that, a run that goes on from an old checkpoint is told from one that was overtaken. It comes back with
    the config of the put, and is a text for all other readers.
    """

    latest: str
    version: int

    @classmethod
    def of(cls, checkpoint: str, *, latest: str, version: int = 0) -> "ReadId":
        made = cls(checkpoint)
        made.latest, made.version = latest, version
        return made

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) if type(other) in (str, ReadId) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return str.__ne__(self, other) if type(other) in (str, ReadId) else NotImplemented

    __hash__ = str.__hash__


class Address(NamedTuple):
    """What a config names."""

    thread: str
    namespace: str
    checkpoint: str | None


def address_of(config: Mapping[str, Any]) -> Address:
    """The thread, namespace and checkpoint of a LangGraph config."""
    configurable = config.get("configurable", {})
    if configurable.get("thread_id") is None:
        raise InvalidInput('The config needs a "thread_id" under "configurable".')
    namespace = str(configurable.get("checkpoint_ns") or "")
    return Address(str(configurable["thread_id"]), namespace, checkpoint_of(config))


def checkpoint_of(config: Mapping[str, Any]) -> str | None:
    checkpoint = config.get("configurable", {}).get("checkpoint_id")
    return (checkpoint if isinstance(checkpoint, str) else str(checkpoint)) if checkpoint else None


def head(namespace: str) -> str:
    return f"{HEADS}{_short(namespace)}"


def checkpoints(namespace: str | None = None) -> str:
    """The beginning of the keys of filed checkpoints, of one namespace or of all."""
    return CHECKPOINTS if namespace is None else f"{CHECKPOINTS}{_short(namespace)}|"


def checkpoint(namespace: str, checkpoint_id: str) -> str:
    return f"{checkpoints(namespace)}{_safe(checkpoint_id)}"


def id_of_checkpoint(key: str) -> str:
    """The id of the checkpoint that is filed under a key."""
    return key.rsplit("|", 1)[1].replace("%7C", "|").replace("%25", "%")


def writes(namespace: str, checkpoint_id: str) -> str:
    """The beginning of the keys of a checkpoint's writes that are kept apart."""
    return f"{WRITES}{_short(namespace)}|{_safe(checkpoint_id)}|"


def task_writes(namespace: str, checkpoint_id: str, task: str, special: int | None) -> str:
    number = "" if special is None else special
    return f"{writes(namespace, checkpoint_id)}{task.replace('|', '%7C')}|{number}"


def checkpoint_of_writes(key: str) -> str:
    """The beginning of a key of writes, up to its checkpoint: what `writes` gives."""
    return "|".join(key.split("|", 3)[:3]) + "|"


def items(namespace: str, channel: str) -> str:
    """The beginning of the keys of a list's items."""
    return f"{ITEMS}{_short(namespace)}|{_digest(channel)}|"


def item(namespace: str, channel: str, number: int) -> str:
    return f"{items(namespace, channel)}{number:010d}"


def number_of(key: str) -> int:
    """The number of the item that is kept under a key."""
    return int(key.rsplit("|", 1)[1])


def _short(namespace: str) -> str:
    return _digest(namespace) if namespace else ""


def _safe(part: str) -> str:
    return part.replace("%", "%25").replace("|", "%7C")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]
