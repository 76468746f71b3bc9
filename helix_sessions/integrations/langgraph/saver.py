"""The checkpointer: LangGraph's calls, each on one thread's documents."""

import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial, wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from helix_sessions.exceptions import SessionExists, SessionNotFound
from helix_sessions.integrations.extras import needed_from
from helix_sessions.integrations.langgraph import connections, keys, puts, removal, strictness
from helix_sessions.integrations.langgraph.documents import StoredCheckpoint
from helix_sessions.integrations.langgraph.keys import Address, ReadId, address_of, checkpoint_of
from helix_sessions.integrations.langgraph.reader import Head, Reader
from helix_sessions.integrations.langgraph.thread import Heads, Put, PutWrites, Thread
from helix_sessions.integrations.langgraph.values import Codec
from helix_sessions.integrations.langgraph.waiting import Errors, WaitingCalls
from helix_sessions.store import SessionStore
from helix_sessions.types import Note

with needed_from("langgraph"):
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory  # since langgraph 1.2

AGENT_TYPE = "langgraph"
_PAGE = 20

Fields = Callable[[RunnableConfig], dict[str, Any]]
P = ParamSpec("P")
R = TypeVar("R")
Call = Callable[Concatenate["DjangoSaver", P], R]


def _connected(call: "Call[P, R]") -> "Call[P, R]":
    """A call on a connection that is closed when its thread ends."""

    @wraps(call)
    def connected(self: "DjangoSaver", /, *args: P.args, **kwargs: P.kwargs) -> R:
        connections.prepare(self._store.using)
        return call(self, *args, **kwargs)

    return connected


def _async(call: "Call[P, R]") -> "Call[P, Coroutine[Any, Any, R]]":
    """The async twin of a call: the same, in another thread."""

    @wraps(call)
    async def twin(self: "DjangoSaver", /, *args: P.args, **kwargs: P.kwargs) -> R:
        lane = _thread_in(kwargs.get("config", args[0] if args else None))
        return await connections.in_thread(self._store.using, partial(call, self, *args, **kwargs), lane=lane)

    return twin


def _thread_in(config: Any) -> str | None:
    """The thread that a config names, if it is one."""
    named = config.get("configurable", {}) if isinstance(config, dict) else {}
    return str(named["thread_id"]) if "thread_id" in named else None


class DjangoSaver(BaseCheckpointSaver[Any]):
    """Checkpoints of LangGraph, each thread one of our sessions, which its first checkpoint creates.

    `fields(config)` says what else `create_session` is given: `owner`, `tags`, `expires_at` … The config's
    `user_id`, if it has one, is the session's. A `strict` saver builds only types that LangGraph knows to be
    safe, or that its `serde` allows; `None` follows LangGraph's own setting. One saver serves sync and async
    graphs, in any threads.
    """

    def __init__(
        self,
        *,
        store: SessionStore | None = None,
        serde: SerializerProtocol | None = None,
        agent_type: str = AGENT_TYPE,
        fields: Fields | None = None,
        strict: bool | None = None,
    ) -> None:
        super().__init__(serde=strictness.serializer(serde, strict))
        self._store = SessionStore() if store is None else store
        self._agent_type = agent_type
        self._fields = fields
        self._heads = Heads()
        self._waiting = WaitingCalls(self._store.using, self._put_all)

    @_connected
    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or else the newest of its thread and namespace."""
        address = address_of(config)
        reader = self._thread(address.thread).reader()
        head = reader.head(address.namespace)
        found = self._find(reader, address, head)
        if found is None:
            return None
        read = partial(ReadId.of, latest=head.latest, version=head.version)
        return self._tuple(reader, address.thread, found, read)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first: of a namespace, of a thread, or of all threads."""
        connections.prepare(self._store.using)
        return islice(self._list(config, filter or {}, before), limit)

    @_connected
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
        address = address_of(config)
        thread = self._thread(address.thread)
        thread.put(self._to_put(thread, config, checkpoint, metadata, new_versions))
        return _config(address.thread, address.namespace, checkpoint["id"])

    @_connected
    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task of the step after a checkpoint wrote."""
        if writes:
            thread = self._thread(address_of(config).thread)
            thread.put_writes(self._to_put_writes(thread, config, writes, task_id, task_path))

    @_connected
    def delete_thread(self, thread_id: str) -> None:
        """Delete the thread's session, with everything that belongs to it."""
        self._store.delete_session(str(thread_id))
        self._heads.forget(str(thread_id))

    @_connected
    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs put, in whichever threads, and their writes."""
        threads: dict[str, list[Note]] = {}
        for run_id in run_ids:
            for note in self._store.find_notes(run_id=str(run_id)):
                if note.key.startswith((keys.CHECKPOINTS, keys.HEADS)):
                    threads.setdefault(note.session_id, []).append(note)
        for name, notes in threads.items():
            thread = self._thread(name)
            removal.remove(thread, {thread.reader().checkpoint_of(note).name for note in notes})

    @_connected
    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Branch the thread as it is now, with all its checkpoints. The target must not exist."""
        try:
            self._store.clone_session(str(source_thread_id), str(target_thread_id))
        except SessionNotFound:
            return

    @_connected
    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace, and those its delta channels are rebuilt from, or
        (`delete`) delete the threads. What a subgraph did in a call goes with the checkpoint that called it.
        """
        if isinstance(thread_ids, str):
            raise TypeError("thread_ids is a sequence of thread ids, not a str.")
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"The strategy is keep_latest or delete, not {strategy!r}.")
        for thread_id in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread_id)
            else:
                removal.prune(self._thread(str(thread_id)))

    @_connected
    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, "DeltaChannelHistory"]:
        """What a `DeltaChannel` is rebuilt from: its last snapshot, and what was written to it since."""
        address = address_of(config)
        reader = self._thread(address.thread).reader()
        found = self._find(reader, address, reader.head(address.namespace))
        histories = reader.history(found, channels) if found else {channel: ([], []) for channel in channels}
        return {
            channel: {"writes": writes, "seed": seeds[0]} if seeds else {"writes": writes}
            for channel, (writes, seeds) in histories.items()
        }

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The next version of a channel: a number, or a text if it was another saver that began to count."""
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}.{random.random():016}"  # noqa: S311
        return 1 if current is None else current + 1

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = islice(self._list(config, filter or {}, before), limit)
        page: list[CheckpointTuple] | None = None
        while page is None or len(page) == _PAGE:
            page = await connections.in_thread(self._store.using, lambda: [*islice(found, _PAGE)])
            for one in page:
                yield one

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        address = address_of(config)
        await self._waiting.call(
            address.thread, lambda thread: self._to_put(thread, config, checkpoint, metadata, new_versions)
        )
        return _config(address.thread, address.namespace, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        if writes:
            await self._waiting.call(
                address_of(config).thread,
                lambda thread: self._to_put_writes(thread, config, writes, task_id, task_path),
            )

    aget_tuple = _async(get_tuple)
    adelete_thread = _async(delete_thread)
    adelete_for_runs = _async(delete_for_runs)
    acopy_thread = _async(copy_thread)
    aprune = _async(prune)
    aget_delta_channel_history = _async(get_delta_channel_history)

    def _to_put(self, thread: Thread, config: RunnableConfig, *given: Any) -> Put:
        return puts.of_checkpoint(
            thread.codec, config, *given, create=partial(self._create, thread.id, config)
        )

    def _to_put_writes(self, thread: Thread, config: RunnableConfig, *given: Any) -> PutWrites:
        create = partial(self._create, thread.id, config, new=False)
        return puts.of_writes(thread.codec, config, *given, create=create)

    def _put_all(self, thread_id: str, waiting: Sequence[puts.ToPut]) -> Errors:
        return puts.store_all(self._thread(thread_id), waiting)

    def _find(self, reader: Reader, address: Address, head: Head) -> StoredCheckpoint | None:
        """The checkpoint of an address, or the newest one."""
        found = head.checkpoint
        if found is None or address.checkpoint in (None, found.id):
            return found
        return reader.find(address.namespace, str(address.checkpoint))

    def _thread(self, thread: str) -> Thread:
        return Thread(self._store, thread, Codec(self.serde), self._heads, agent_type=self._agent_type)

    def _tuple(
        self, reader: Reader, thread: str, found: StoredCheckpoint, read: Callable[[str], str]
    ) -> CheckpointTuple:
        own = {**reader.load(found.checkpoint), "id": found.id, "channel_values": reader.values(found)}
        return CheckpointTuple(
            config=_config(thread, found.namespace, read(found.id)),
            checkpoint=cast(Checkpoint, own),
            metadata=reader.load(found.metadata),
            parent_config=_config(thread, found.namespace, read(found.parent)) if found.parent else None,
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
            latest = {each.namespace: each.latest or each.id for each in reversed(found)}
            for each in found:
                if (
                    session is None
                    or wanted not in (None, each.id)
                    or (end is not None and each.id >= end)
                    or (filter and not _matches(reader.load(each.metadata), filter))
                ):
                    continue
                read = partial(ReadId.of, latest=latest[each.namespace], version=session.version)
                yield self._tuple(reader, thread, each, read)

    def _threads(self) -> Iterator[str]:
        cursor = None
        while True:
            page = self._store.list_sessions(agent_type=self._agent_type, cursor=cursor)
            yield from (summary.session_id for summary in page.items)
            cursor = page.next_cursor
            if cursor is None:
                return

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
