"""Moves threads over from another checkpointer of LangGraph, such as `SqliteSaver` or `PostgresSaver`."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from helix_sessions.integrations.extras import needed_from
from helix_sessions.integrations.langgraph.keys import ReadId
from helix_sessions.integrations.langgraph.saver import DjangoSaver

with needed_from("langgraph"):
    from langgraph.checkpoint.base import BaseCheckpointSaver


def import_threads(
    source: BaseCheckpointSaver[Any], target: DjangoSaver, thread_ids: Iterable[str] | None = None
) -> list[str]:
    """Copy threads with all their checkpoints and pending writes; all threads of the source if none is named.

    Idempotent: a copy that was interrupted is completed. A thread that has gone on in the target since is
    left alone. Returns the threads that were copied.
    """
    if thread_ids is None:
        thread_ids = dict.fromkeys(one.config["configurable"]["thread_id"] for one in source.list(None))
    return [thread for thread in map(str, thread_ids) if _import_thread(source, target, thread)]


def _import_thread(source: BaseCheckpointSaver[Any], target: DjangoSaver, thread: str) -> bool:
    whole: Any = {"configurable": {"thread_id": thread}}
    found = sorted(source.list(whole), key=lambda each: each.checkpoint["id"])
    ours = {one.checkpoint["id"] for one in target.list(whole)}
    if not found or ours - {one.checkpoint["id"] for one in found}:
        return False
    latest: dict[str, str] = {}
    before: dict[tuple[str, str | None], Any] = {}
    for one in found:
        namespace, checkpoint = one.config["configurable"].get("checkpoint_ns", ""), one.checkpoint
        parent = one.parent_config["configurable"]["checkpoint_id"] if one.parent_config else None
        configurable = {
            "thread_id": thread,
            "checkpoint_ns": namespace,
            "user_id": one.metadata.get("user_id"),
        }
        if parent is not None:  # which may be an old one: a branch
            configurable["checkpoint_id"] = ReadId.of(parent, latest=latest.get(namespace, ""))
        now = {
            channel: (version, target.serde.dumps_typed(checkpoint["channel_values"].get(channel)))
            for channel, version in checkpoint["channel_versions"].items()
        }
        then = before.get((namespace, parent), {})
        changed = {channel: each[0] for channel, each in now.items() if then.get(channel) != each}
        config: Any = {"configurable": configurable, "metadata": {**one.metadata}}
        put = target.put(config, checkpoint, one.metadata, changed)
        latest[namespace] = checkpoint["id"]
        before[namespace, checkpoint["id"]] = now
        tasks = groupby(one.pending_writes or (), key=lambda write: write[0])
        for number, (task, writes) in enumerate(tasks):
            path = f"{number:06}"  # a saver does not tell it: this one keeps the order
            target.put_writes(put, [(channel, value) for _, channel, value in writes], task, path)
    return True
