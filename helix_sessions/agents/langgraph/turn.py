"""One turn of a graph: from what is new in the transcript to the graph's next answer."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from asgiref.sync import sync_to_async
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphRecursionError
from langgraph.types import Command
from pydantic_core import to_jsonable_python

from helix_sessions.agents.langgraph import graph_messages as messages
from helix_sessions.agents.langgraph import interrupts, marks
from helix_sessions.agents.langgraph.graph_messages import Group
from helix_sessions.agents.langgraph.listening import MODES, Listener, Usage
from helix_sessions.agents.langgraph.marks import Mark
from helix_sessions.exceptions import InvalidInput
from helix_sessions.integrations.langgraph.saver import DjangoSaver
from helix_sessions.integrations.langgraph.thread import Heads, Thread
from helix_sessions.integrations.langgraph.values import Codec
from helix_sessions.messages.tool_outputs import as_text
from helix_sessions.runtime.loop.stops import Stopped
from helix_sessions.runtime.outcomes import FrameworkOutcome
from helix_sessions.runtime.turn_context import TurnContext
from helix_sessions.store import SessionStore

_NOTHING = "0"
"""The id of no checkpoint: a graph that is run from it begins anew."""
_NOT_INPUT = ("role", "id", "content", "kind")
_NO_RESULTS = ("__interrupt__", "__resume__", "__error__")
"""Where a task writes that has not ended."""
_MOST_STEPS = 1_000
"""So many super-steps a turn may take where the graph has no recursion limit of its own."""


class _Saver(DjangoSaver):
    """The session's checkpoints; what is said in the transcript is left to the loop."""

    def __init__(self, store: SessionStore, heads: Heads) -> None:
        super().__init__(store=store)
        self._heads = heads

    def _thread(self, thread: str) -> Thread:
        return Thread(self._store, thread, Codec(self.serde), self._heads, agent_type=None)


class GraphTurn:
    """A turn, and the graph as it stands in it."""

    def __init__(self, graph: Any, turn: TurnContext, heads: Heads, context: Any) -> None:
        self._store = turn.store
        self._graph = graph.copy(update={"checkpointer": _Saver(self._store, heads)})
        self._turn = turn
        self._context = context
        self._usage = Usage()
        self._steps = 0
        self._from: str | None = None
        """The checkpoint to go on from, if it is not the newest."""

    async def answer(self) -> FrameworkOutcome:
        """Run the graph up to its next answer."""
        self._said = said = await sync_to_async(marks.read)(self._store, self._turn.session_id)
        self._mark = said.mark
        state = await self._open()
        self._before = {message.id for message in _messages(state)}
        if self._mark.waits and _asked(state) and set(self._mark.waits) == set(said.answers):
            values = interrupts.resume_values(self._mark.waits, said.answers)
            asked = {found.id for found in _asked(state)}
            if asked == set(values):
                state = await self._step(Command(resume=values))
        while True:
            group = self._group(state)
            waiting = bool(_asked(state))
            over = not state.next and not waiting
            if group is not None and (group.complete or over or self._is_left(state)):
                return self._told(state, group, is_last=over)
            if waiting:
                return self._waits(state, group)
            given = self._input(state)
            if over and given is None:
                return self._ended(state)
            state = await self._step(given)

    # Where the graph stands

    async def _open(self) -> Any:
        """The state to go on from: the newest, unless the transcript was taken back since."""
        state = await self._state()
        newest, mark = _id_of(state), self._mark
        if newest is None:
            self._mark = replace(mark, checkpoint="", told=0, last=None, given=0, waits={})
            self._begins = True
            return state
        self._begins = False
        metadata = state.metadata or {}
        if newest == mark.checkpoint:
            return state
        if metadata.get("helix_after", "") == mark.checkpoint and not await sync_to_async(marks.was_rewound)(
            self._store, self._turn.session_id, int(metadata.get("helix_seq", 0))
        ):
            given = max(mark.given, int(metadata.get("helix_given", 0)))
            told, last = int(metadata.get("helix_told", mark.told)), metadata.get("helix_last") or mark.last
            self._mark = replace(mark, given=given, told=told, last=last)
            return state
        self._from = mark.checkpoint or _NOTHING
        self._begins = not mark.checkpoint
        return await self._state()

    async def _state(self) -> Any:
        """What the graph does next, with its values after the last whole super-step: LangGraph shows in those
        of the newest state also what single tasks of the next have written."""
        state = await self._graph.aget_state(self._config())
        if any(task.interrupts for task in state.tasks):
            state = await self._without_ended(state)
        if self._from is None and any(task.result is not None for task in state.tasks):
            whole = await self._graph.aget_state(state.config)
            return state._replace(values=whole.values)
        return state

    async def _without_ended(self, state: Any) -> Any:
        """What tasks ask that have not ended. LangGraph before 1.2.13 takes the answer to a task's first
        question for its result, and shows what ended tasks have asked."""
        found = await self._graph.checkpointer.aget_tuple(state.config)
        writes = () if found is None else found.pending_writes or ()
        ended = {task_id for task_id, channel, _ in writes if channel not in _NO_RESULTS}
        tasks = tuple(
            task._replace(interrupts=()) if task.id in ended else task._replace(result=None)
            for task in state.tasks
        )
        return state._replace(tasks=tasks, next=tuple(task.name for task in tasks if task.id not in ended))

    def _config(self) -> RunnableConfig:
        turn = self._turn
        configurable: dict[str, Any] = {"thread_id": turn.session_id}
        if self._from is not None:
            configurable["checkpoint_id"] = self._from
        if turn.state.user_id:
            configurable["user_id"] = turn.state.user_id
        if turn.definition.model:
            configurable["model"] = turn.definition.model
        texts = dict.fromkeys((turn.context.baseline, turn.definition.system_prompt))
        prompt = "\n\n".join(text for text in texts if text)
        if prompt:
            configurable["system_prompt"] = prompt
        return {
            "configurable": configurable,
            "callbacks": [self._usage],
            "metadata": {
                "helix_after": self._mark.checkpoint,
                "helix_given": self._mark.given,
                "helix_told": self._mark.told,
                "helix_last": self._mark.last or "",
                "helix_seq": turn.state.head_seq,
                "helix_run": turn.run.run_id,
            },
        }

    async def _step(self, given: Any) -> Any:
        """One super-step."""
        limit = (self._graph.config or {}).get("recursion_limit", _MOST_STEPS)
        self._steps += 1
        if self._steps > limit:
            raise GraphRecursionError(f"The graph has taken {limit} steps without an answer.")
        listener = Listener()
        stream = self._graph.astream(
            given,
            self._config(),
            context=self._context,
            stream_mode=MODES,
            subgraphs=True,
            interrupt_after="*",
            durability="sync",
        )
        try:
            async for namespace, mode, data in stream:
                if self._turn.interrupted():
                    raise Stopped
                for found in listener.began(namespace):
                    await self._turn.emit("subgraph_started", _line(listener, found))
                for fragment in listener.fragments(namespace, mode, data):
                    await self._turn.publish_fragment(fragment)
        finally:
            await stream.aclose()
        for found in reversed(listener.running):
            await self._turn.emit("subgraph_finished", _line(listener, found))
        self._from = None
        return await self._state()

    # What it is given

    def _input(self, state: Any) -> Any:
        """What is new for the graph; `None`: it goes on by itself, or has nothing to do."""
        new = self._new()
        goes_on = bool(state.next)
        if not new:
            first = not goes_on and self._steps == 0 and self._takes_messages
            return {"messages": []} if first else None
        found = self._read(new)
        self._mark = replace(self._mark, given=self._said.total)
        self._begins = False
        steers = goes_on and self._is_same_run(state)
        if "messages" in found:
            before = _messages(state)
            if not steers:
                found["messages"] = [*messages.stopped_calls(before), *found["messages"]]
            if found["messages"]:
                told, last = len(before) + len(found["messages"]), found["messages"][-1].id
                self._mark = replace(self._mark, told=told, last=last)
        return Command(update=found) if steers else found

    def _new(self) -> list[dict[str, Any]]:
        if self._begins:
            return [dict(message) for message in self._turn.context.messages]
        return self._said.ungiven(self._mark.given)

    def _is_same_run(self, state: Any) -> bool:
        return bool((state.metadata or {}).get("helix_run") == self._turn.run.run_id)

    def _is_left(self, state: Any) -> bool:
        """Whether a run that died has left an answer with open calls, and a message was added since. What
        was said before a stop is told already."""
        new = self._new()
        return bool(new) and not self._is_same_run(state) and not any(each.get("interrupted") for each in new)

    def _read(self, new: list[dict[str, Any]]) -> dict[str, Any]:
        """Messages as the graph's input: what they say, and their other keys that the graph knows."""
        keys = self._keys
        found: dict[str, Any] = {}
        for message in new:
            found.update(
                (key, value) for key, value in message.items() if key in keys and key not in _NOT_INPUT
            )
        if self._takes_messages:
            texts = [message for message in new if "content" in message or message["role"] != "user"]
            found["messages"] = messages.of_transcript(texts, session_id=self._turn.session_id)
        elif not found:
            raise InvalidInput(
                f"The graph {self._graph.name!r} takes no messages. Give it an object with one of the keys "
                f"{', '.join(sorted(keys))}."
            )
        return found

    @property
    def _keys(self) -> set[str]:
        """What a graph may be given."""
        builder = self._graph.builder
        return set(builder.schemas[builder.input_schema])

    @property
    def _takes_messages(self) -> bool:
        return "messages" in self._keys

    # What it says

    def _group(self, state: Any) -> Group | None:
        said = _messages(state)
        return messages.next_group(said, self._mark.place_in(said))

    def _told(self, state: Any, group: Group, *, is_last: bool) -> FrameworkOutcome:
        """An answer that is there."""
        said = state.values["messages"]
        more = messages.next_group(said, group.end) is not None
        final = is_last and not more and not self._new()
        message = group.message(with_text=group.answer.id is None or group.answer.id != self._mark.said)
        mark = self._next_mark(state, told=group.end, last=group.last.id)
        if group.answer.id not in self._before:
            self._usage.add(group.answer, str(group.answer.id))
        if self._turn.definition.model:
            message.pop("model", None)
        return FrameworkOutcome(
            message={**message, marks.KEY: mark.document()},
            usage=self._usage.total() if self._steps else None,
            output=self._output(state) if final else None,
            replies=group.replies(),
            final=final,
        )

    def _waits(self, state: Any, group: Group | None) -> FrameworkOutcome:
        """What the graph asks; an answer whose calls it asks about is told with it, its results later."""
        waits = interrupts.Waits(_asked(state), self._said.total)
        said = group.answer if group is not None else None
        mark = self._next_mark(state, told=self._mark.told, last=self._mark.last)
        mark = replace(mark, waits=waits.about, said=said.id if said is not None else None)
        return FrameworkOutcome(
            message={
                "role": "assistant",
                "content": "" if said is None else messages.text_of(said),
                "tool_calls": waits.calls,
                marks.KEY: mark.document(),
            },
            usage=self._usage.total() if self._steps else None,
            kinds=waits.kinds,
            schemas=waits.schemas,
            final=False,
        )

    def _ended(self, state: Any) -> FrameworkOutcome:
        """The end of a graph that has said nothing more."""
        output = self._output(state)
        said = _messages(state)
        mark = self._next_mark(state, told=len(said), last=said[-1].id if said else None)
        return FrameworkOutcome(
            message={
                "role": "assistant",
                "content": "" if self._takes_messages else as_text(output),
                marks.KEY: mark.document(),
            },
            usage=self._usage.total() if self._steps else None,
            output=output,
            final=True,
        )

    def _next_mark(self, state: Any, *, told: int, last: str | None) -> Mark:
        return Mark(checkpoint=_id_of(state) or "", told=told, last=last, given=self._mark.given)

    def _output(self, state: Any) -> Any:
        """A structured response, or else what was said last, or else the graph's output."""
        values = state.values if isinstance(state.values, Mapping) else {}
        if values.get("structured_response") is not None:
            return to_jsonable_python(values["structured_response"], fallback=str)
        channels = self._graph.output_channels
        names = [channels] if isinstance(channels, str) else list(channels)
        if "messages" in names:
            answers = [each for each in values.get("messages", ()) if each.type == "ai"]
            return messages.text_of(answers[-1]) if answers else None
        return to_jsonable_python({name: values[name] for name in names if name in values}, fallback=str)


def _id_of(state: Any) -> str | None:
    found = (state.config or {}).get("configurable", {}).get("checkpoint_id")
    return None if found is None or state.created_at is None else str(found)


def _messages(state: Any) -> list[Any]:
    said = state.values.get("messages", []) if isinstance(state.values, Mapping) else []
    return said if isinstance(said, list) else []


def _asked(state: Any) -> list[Any]:
    return [found for task in state.tasks for found in task.interrupts]


def _line(listener: Listener, namespace: tuple[str, ...]) -> dict[str, Any]:
    return {"name": listener.running[namespace], "namespace": "|".join(namespace)}
