"""What LangGraph hands over to be stored, and how: several things at once where they waited together."""

from collections.abc import Callable, Sequence
from typing import Any

from django.db import Error as DatabaseFailure

from helix_sessions.integrations.extras import needed_from
from helix_sessions.integrations.langgraph.documents import StoredCheckpoint, Write
from helix_sessions.integrations.langgraph.keys import address_of
from helix_sessions.integrations.langgraph.thread import Create, Kind, Put, PutWrites, Thread
from helix_sessions.integrations.langgraph.values import Codec

with needed_from("langgraph"):
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        get_checkpoint_metadata,
    )

ToPut = Callable[[Thread], Put | PutWrites]


def of_checkpoint(
    codec: Codec,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
    *,
    create: Create,
) -> Put:
    """A checkpoint, whose parent the config names."""
    address = address_of(config)
    described = get_checkpoint_metadata(config, metadata)
    run_id = described.get("run_id")
    own = {name: each for name, each in checkpoint.items() if name not in ("id", "channel_values")}
    return Put(
        checkpoint=StoredCheckpoint(
            id=checkpoint["id"],
            namespace=address.namespace,
            parent=address.checkpoint,
            checkpoint=codec.dump(own),
            metadata=codec.dump(described),
            run_id=str(run_id) if run_id else None,
        ),
        values=checkpoint["channel_values"],
        versions=checkpoint["channel_versions"],
        changed=new_versions,
        kind=Kind.of(described),
        create=create,
    )


def of_writes(
    codec: Codec,
    config: RunnableConfig,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
    *,
    create: Create,
) -> PutWrites:
    """What a task wrote after the checkpoint that the config names."""
    address = address_of(config)
    return PutWrites(
        namespace=address.namespace,
        checkpoint=address.checkpoint or "",
        writes=[
            Write(
                task=task_id,
                path=task_path,
                index=WRITES_IDX_MAP.get(channel, index),
                channel=channel,
                value=codec.dump(value),
            )
            for index, (channel, value) in enumerate(writes)
        ],
        create=create,
    )


def store_all(thread: Thread, waiting: Sequence[ToPut]) -> list[Exception | None]:
    """Store what was to be stored one after the other: in one go if that can be. The error of each."""
    if len(waiting) > 1:
        try:
            if thread.put_together([put(thread) for put in waiting]):
                return [None] * len(waiting)
        except DatabaseFailure:
            raise  # it may be stored, for all that is known: not again
        except Exception:  # noqa: S110 - of one of them, which meets it again
            pass
    return [_error_of(thread, put) for put in waiting]


def _error_of(thread: Thread, to_put: ToPut) -> Exception | None:
    try:
        put = to_put(thread)
        if isinstance(put, Put):
            thread.put(put)
        else:
            thread.put_writes(put)
    except Exception as error:
        return error
    return None
