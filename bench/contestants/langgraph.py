"""LangGraph: `PostgresSaver`, called as the Pregel loop calls it at the end of a step."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from bench.contestants.base import Contestant
from bench.payload import Document, Step
from bench.place import Place, Route


class LangGraph(Contestant):
    """One `put_writes` with what the step's task produced, and one `put` of the whole checkpoint.

    The messages are a channel of message objects, which `put` serialises whole when it has changed.
    """

    name = "LangGraph PostgresSaver"
    database = "langgraph"
    less = "no event log, no version check, writes and checkpoint in two transactions"
    packages = ("langgraph.checkpoint.postgres",)
    slow = True

    def __init__(self, place: Place, through: Route = "direct") -> None:
        from langgraph.checkpoint.postgres import PostgresSaver

        self._context = PostgresSaver.from_conn_string(place.url(self.database, through))
        self.saver = self._context.__enter__()
        self.threads: dict[str, tuple[Any, Any]] = {}

    @classmethod
    def prepare(cls, place: Place) -> None:
        saver = cls(place)
        saver.saver.setup()
        saver.close()

    def close(self) -> None:
        self._context.__exit__(None, None, None)

    def create(self, session_id: str) -> None:
        from langgraph.checkpoint.base import empty_checkpoint

        config = {"configurable": {"thread_id": session_id, "checkpoint_ns": ""}}
        self._put(session_id, config, empty_checkpoint(), [], {})

    def fill(self, session_id: str, messages: list[Document]) -> None:
        config, checkpoint = self.threads[session_id]
        self._put(session_id, config, checkpoint, messages, {})

    def open(self, session_id: str) -> None:
        found = self.saver.get_tuple({"configurable": {"thread_id": session_id, "checkpoint_ns": ""}})
        assert found
        self.threads[session_id] = found.config, found.checkpoint

    def step(self, session_id: str, step: Step) -> None:
        config, checkpoint = self.threads[session_id]
        added = [_message(message) for message in step.messages]
        self.saver.put_writes(config, [("messages", added), ("state", step.state)], str(uuid4()))
        self._put(session_id, config, checkpoint, step.messages, step.state)

    def append(self, session_id: str, messages: list[Document]) -> None:
        config, checkpoint = self.threads[session_id]
        self._put(session_id, config, checkpoint, messages, None)

    def load_all(self, session_id: str) -> Any:
        found = self.saver.get_tuple({"configurable": {"thread_id": session_id, "checkpoint_ns": ""}})
        assert found
        return found.checkpoint["channel_values"]["messages"]

    def delete(self, session_id: str) -> None:
        self.saver.delete_thread(session_id)

    def _put(
        self, session_id: str, config: Any, before: Any, messages: list[Document], state: Document | None
    ) -> None:
        from langgraph.checkpoint.base.id import uuid6

        values = dict(before["channel_values"])
        values["messages"] = [*values.get("messages", ()), *map(_message, messages)]
        if state is not None:
            values["state"] = state
        changed = ["messages"] if state is None else ["messages", "state"]
        versions = before["channel_versions"]
        new = {name: self.saver.get_next_version(versions.get(name), None) for name in changed}
        checkpoint = {
            **before,
            "id": str(uuid6(clock_seq=-2)),
            "ts": datetime.now(UTC).isoformat(),
            "channel_values": values,
            "channel_versions": {**versions, **new},
        }
        config = self.saver.put(config, checkpoint, {"source": "loop", "step": 1, "parents": {}}, new)
        self.threads[session_id] = config, checkpoint


def _message(message: Document) -> Any:
    from langchain_core.messages import AIMessage, HumanMessage

    kind = HumanMessage if message["role"] == "user" else AIMessage
    return kind(content=message["content"], id=str(uuid4()))
