"""The checkpointer: LangGraph's calls, each on one thread's documents."""

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
from helix_sessions.integrations.langgraph import lists, places
from helix_sessions.integrations.langgraph.codec import Codec
from helix_sessions.integrations.langgraph.desk import opened
from helix_sessions.integrations.langgraph.memory import Memory
from helix_sessions.integrations.langgraph.places import Place, place_of
from helix_sessions.integrations.langgraph.removal import remove
from helix_sessions.integrations.langgraph.threads import Document, Thread, channels_of
from helix_sessions.store import SessionStore

with needed_from("langgraph"):
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
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


class DjangoSaver(BaseCheckpointSaver[int]):
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
        self._memory = Memory()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or else the newest of its thread and namespace."""
        with self._connection():
            return self._get_tuple(place_of(config))

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
            self._memory.forget(str(thread_id))

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
                    remove(self._thread(str(thread_id)), _all_but_the_newest)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await sync_to_async(self._get_tuple)(place_of(config))

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
        return Thread(self._store, thread, Codec(self.serde), self._memory)

    def _get_tuple(self, place: Place) -> CheckpointTuple | None:
        thread = self._thread(place.thread)
        seen, newest = thread.look(place.namespace)
        if not seen.version:
            self._memory.see(place.thread, place.namespace, None, seen)
            return None
        wanted = place.checkpoint or seen.latest
        self._memory.see(place.thread, place.namespace, wanted, seen)
        document = newest if wanted == seen.latest else thread.find(place.namespace, str(wanted))
        if document is None:
            return None
        return self._tuple(thread, document, lists.Reader(self._store, thread.id, thread.codec), keep=True)

    def _tuple(
        self, thread: Thread, document: Document, reader: lists.Reader, *, keep: bool = False
    ) -> CheckpointTuple:
        namespace = document.get("ns", "")
        values, listed = thread.values(document, reader)
        if keep:
            thread.remember(document, listed)
        parent = document.get("parent")
        stored = document["checkpoint"]
        return CheckpointTuple(
            config=_config(thread.id, namespace, document["id"]),
            checkpoint=cast(Checkpoint, {**stored, "id": document["id"], "channel_values": values}),
            metadata=thread.codec.decode(document["metadata"]),
            parent_config=None if parent is None else _config(thread.id, namespace, parent),
            pending_writes=thread.writes(document, reader),
        )

    def _list(
        self, config: RunnableConfig | None, filter: dict[str, Any], before: RunnableConfig | None
    ) -> Iterator[CheckpointTuple]:
        configurable = {} if config is None else config.get("configurable", {})
        namespace = configurable.get("checkpoint_ns")
        wanted = configurable.get("checkpoint_id")
        end = None if before is None else place_of(before).checkpoint
        for name in self._threads() if config is None else [place_of(config).thread]:
            thread = self._thread(name)
            reader = lists.Reader(self._store, name, thread.codec)
            for document in thread.documents(namespace):
                if (wanted and document["id"] != wanted) or (end is not None and document["id"] >= end):
                    continue
                metadata = thread.codec.decode(document["metadata"]) if filter else {}
                if all(key in metadata and metadata[key] == value for key, value in filter.items()):
                    yield self._tuple(thread, document, reader)

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
        place = place_of(config)
        thread = self._thread(place.thread)
        described = _listed(get_checkpoint_metadata(config, metadata))
        run_id = described.get("run_id")
        stored = {
            name: value
            for name, value in checkpoint.items()
            if name not in ("id", "channel_values") and not (name == "pending_sends" and not value)
        }
        document: Document = {
            "id": checkpoint["id"],
            **({"ns": place.namespace} if place.namespace else {}),
            **({"parent": place.checkpoint} if place.checkpoint else {}),
            "checkpoint": stored,
            "metadata": thread.codec.encode(described),
        }
        thread.put(
            place.namespace,
            place.checkpoint,
            document,
            checkpoint["channel_values"],
            new_versions,
            str(run_id) if run_id else None,
            lambda: self._create(place.thread, config),
        )
        return _config(place.thread, place.namespace, checkpoint["id"])

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        place = place_of(config)
        self._thread(place.thread).put_writes(
            place.namespace,
            place.checkpoint or "",
            writes,
            task_id,
            task_path,
            lambda: self._create(place.thread, config, new=False),
        )

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
        gone: dict[str, set[tuple[str, str]]] = {}
        for run_id in run_ids:
            for note in self._store.find_notes(run_id=str(run_id)):
                if note.key.startswith((places.checkpoints(), places.DESKS)):
                    document = opened(note)
                    found = (document.get("ns", ""), document["id"])
                    gone.setdefault(note.session_id, set()).add(found)
        for thread, doomed in gone.items():
            remove(self._thread(thread), partial(_those_of, doomed))


def _config(thread: str, namespace: str, checkpoint: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}}


def _listed(value: Any) -> Any:
    """Metadata with lists for tuples, as JSON has them."""
    if isinstance(value, dict):
        return {key: _listed(each) for key, each in value.items()}
    return [_listed(each) for each in value] if isinstance(value, list | tuple) else value


def _those_of(doomed: set[tuple[str, str]], found: Sequence[Document]) -> set[tuple[str, str]]:
    return doomed & {(document.get("ns", ""), document["id"]) for document in found}


def _all_but_the_newest(found: Sequence[Document]) -> set[tuple[str, str]]:
    """All but the newest of each namespace and the ancestors its delta channels are rebuilt from."""
    by_name = {(document.get("ns", ""), document["id"]): document for document in found}
    newest: dict[str, Document] = {}
    for document in found:  # the newest first
        newest.setdefault(document.get("ns", ""), document)
    kept: set[tuple[str, str]] = set()
    for namespace, document in newest.items():
        here: Document | None = document
        counters = document["metadata"].get("j", {}).get("counters_since_delta_snapshot") or {}
        missing = set(counters) - channels_of(document)
        kept.add((namespace, document["id"]))
        while missing and here is not None:
            here = by_name.get((namespace, here.get("parent", "")))
            if here is not None:
                kept.add((namespace, here["id"]))
                missing -= channels_of(here)
    return set(by_name) - kept
