"""The checkpointer: LangGraph's calls, each on one thread's documents."""

import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.db import connections

from helix_sessions.exceptions import SessionExists, SessionNotFound
from helix_sessions.integrations.extras import needed_from
from helix_sessions.integrations.langgraph import keys, removal
from helix_sessions.integrations.langgraph.heads import Heads
from helix_sessions.integrations.langgraph.keys import Address, ReadId, address_of, checkpoint_of
from helix_sessions.integrations.langgraph.reader import Reader
from helix_sessions.integrations.langgraph.stored import StoredCheckpoint, Write
from helix_sessions.integrations.langgraph.thread import Thread
from helix_sessions.integrations.langgraph.values import Codec
from helix_sessions.store import SessionStore
from helix_sessions.types import Note

with needed_from("langgraph"):
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        get_checkpoint_metadata,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol

AGENT_TYPE = "langgraph"
_PAGE = 20

Fields = Callable[[RunnableConfig], dict[str, Any]]


class DjangoSaver(BaseCheckpointSaver[Any]):
    """Checkpoints of LangGraph, each thread one of our sessions, which its first checkpoint creates.

    `fields(config)` says what else `create_session` is given: `owner`, `tags`, `expires_at` … The config's
    `user_id`, if it has one, is the session's. One saver serves sync and async graphs, in any threads.
    """

    def __init__(
        self,
        *,
        store: SessionStore | None = None,
        serde: SerializerProtocol | None = None,
        agent_type: str = AGENT_TYPE,
        fields: Fields | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self._store = SessionStore() if store is None else store
        self._agent_type = agent_type
        self._fields = fields
        self._heads = Heads()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or else the newest of its thread and namespace."""
        with self._connection():
            return self._get_tuple(address_of(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first: of a namespace, of a thread, or of all threads."""
        with self._connection():
            yield from islice(self._list(config, filter or {}, before), limit)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint: what it changed, and where the rest is.

        Raises `StaleState` when another run has put one since this one read its parent.
        """
        with self._connection():
            return self._put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task of the step after a checkpoint wrote."""
        with self._connection():
            self._put_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        """Delete the thread's session, with everything that belongs to it."""
        with self._connection():
            self._store.delete_session(str(thread_id))
            self._heads.forget(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs put, in whichever threads, and their writes."""
        with self._connection():
            self._delete_for_runs(run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Branch the thread as it is now, with all its checkpoints. The target must not exist."""
        with self._connection():
            try:
                self._store.clone_session(str(source_thread_id), str(target_thread_id))
            except SessionNotFound:
                return

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace, or (`delete`) delete the threads."""
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"The strategy is keep_latest or delete, not {strategy!r}.")
        for thread_id in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread_id)
            else:
                with self._connection():
                    removal.prune(self._thread(str(thread_id)))

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The next version of a channel: a number, or a text if it was another saver that began to count."""
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}.{random.random():016}"  # noqa: S311
        return 1 if current is None else current + 1

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await sync_to_async(self._get_tuple)(address_of(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = islice(self._list(config, filter or {}, before), limit)
        while page := await sync_to_async(lambda: [*islice(found, _PAGE)])():
            for one in page:
                yield one

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await sync_to_async(self._put)(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await sync_to_async(self._put_writes)(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await sync_to_async(self.delete_thread)(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await sync_to_async(self._delete_for_runs)(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await sync_to_async(self.copy_thread)(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await sync_to_async(self.prune)(thread_ids, strategy=strategy)

    @contextmanager
    def _connection(self) -> Iterator[None]:
        """A graph's threads come and go with each run; a connection that one opens here ends here too."""
        connection = connections[self._store.using]
        was_open = connection.connection is not None
        try:
            yield
        finally:
            if not was_open and threading.current_thread() is not threading.main_thread():
                connection.close()

    def _thread(self, thread: str) -> Thread:
        return Thread(self._store, thread, Codec(self.serde), self._heads)

    def _get_tuple(self, address: Address) -> CheckpointTuple | None:
        reader = self._thread(address.thread).reader()
        head = reader.head(address.namespace)
        found = head.checkpoint
        if found is None:
            self._heads.set_empty(address.thread, address.namespace, True)
            return None
        if address.checkpoint not in (None, found.id):
            found = reader.find(address.namespace, str(address.checkpoint))
        return (
            None if found is None else self._tuple(reader, address.thread, found, head.latest, head.version)
        )

    def _tuple(
        self, reader: Reader, thread: str, found: StoredCheckpoint, latest: str, version: int
    ) -> CheckpointTuple:
        own = reader.load(found.checkpoint)
        read_id = ReadId.of(found.id, latest=latest, version=version)
        return CheckpointTuple(
            config=_config(thread, found.namespace, read_id),
            checkpoint=cast(Checkpoint, {**own, "id": found.id, "channel_values": reader.values(found)}),
            metadata=reader.load(found.metadata),
            parent_config=_config(thread, found.namespace, found.parent) if found.parent else None,
            pending_writes=reader.writes(found),
        )

    def _list(
        self, config: RunnableConfig | None, filter: dict[str, Any], before: RunnableConfig | None
    ) -> Iterator[CheckpointTuple]:
        namespace = None if config is None else config.get("configurable", {}).get("checkpoint_ns")
        wanted = None if config is None else checkpoint_of(config)
        end = None if before is None else checkpoint_of(before)
        for thread in self._threads() if config is None else [address_of(config).thread]:
            reader = self._thread(thread).reader()
            session = reader.open()
            found = reader.checkpoints(namespace) if session else []
            listed = [each for each in found if wanted in (None, each.id) and (end is None or each.id < end)]
            if namespace is not None and not listed:
                self._heads.set_empty(thread, namespace, False)
            latest = {each.namespace: each.latest or each.id for each in reversed(found)}
            for each in listed:
                if session and (not filter or _matches(reader.load(each.metadata), filter)):
                    yield self._tuple(reader, thread, each, latest[each.namespace], session.version)

    def _threads(self) -> Iterator[str]:
        cursor = None
        while True:
            page = self._store.list_sessions(agent_type=self._agent_type, cursor=cursor)
            yield from (summary.session_id for summary in page.items)
            cursor = page.next_cursor
            if cursor is None:
                return

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        address = address_of(config)
        thread = self._thread(address.thread)
        described = get_checkpoint_metadata(config, metadata)
        run_id = described.get("run_id")
        own = {name: each for name, each in checkpoint.items() if name not in ("id", "channel_values")}
        put = StoredCheckpoint(
            id=checkpoint["id"],
            namespace=address.namespace,
            parent=address.checkpoint,
            checkpoint=thread.codec.dump(own),
            metadata=thread.codec.dump(described),
            values={},
            held={},
            run_id=str(run_id) if run_id else None,
        )
        thread.put(
            put,
            checkpoint["channel_values"],
            checkpoint["channel_versions"],
            new_versions,
            partial(self._create, address.thread, config),
            fork=described.get("source") == "fork",
        )
        return _config(address.thread, address.namespace, checkpoint["id"])

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        address = address_of(config)
        thread = self._thread(address.thread)
        written = [
            Write(
                task=task_id,
                path=task_path,
                index=WRITES_IDX_MAP.get(channel, index),
                channel=channel,
                value=thread.codec.dump(value),
            )
            for index, (channel, value) in enumerate(writes)
        ]
        if written:
            create = partial(self._create, address.thread, config, new=False)
            thread.put_writes(address.namespace, address.checkpoint or "", written, create)

    def _create(self, thread: str, config: RunnableConfig, *, new: bool = True) -> None:
        user = config.get("configurable", {}).get("user_id")
        fields: dict[str, Any] = {"user_id": user} if isinstance(user, str) and user else {}
        if self._fields is not None:
            fields |= self._fields(config)
        try:
            self._store.create_session(thread, agent_type=self._agent_type, **fields)
        except SessionExists:
            self._store.get_session_head(thread)  # raises if it is another owner's
            if new:
                raise

    def _delete_for_runs(self, run_ids: Sequence[str]) -> None:
        threads: dict[str, list[Note]] = {}
        for run_id in run_ids:
            for note in self._store.find_notes(run_id=str(run_id)):
                if note.key.startswith((keys.CHECKPOINTS, keys.HEADS)):
                    threads.setdefault(note.session_id, []).append(note)
        for name, notes in threads.items():
            thread = self._thread(name)
            removal.remove(thread, {thread.reader().checkpoint_of(note).name for note in notes})


def _config(thread: str, namespace: str, checkpoint: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}}


def _matches(metadata: dict[str, Any], filter: dict[str, Any]) -> bool:
    return all(_named(metadata, name) == value for name, value in filter.items())


def _named(metadata: Any, name: str) -> Any:
    """What metadata have under a name; a dot goes into what is nested."""
    if isinstance(metadata, dict) and name in metadata:
        return metadata[name]
    first, dot, rest = name.partition(".")
    return _named(metadata.get(first), rest) if dot and isinstance(metadata, dict) else None
