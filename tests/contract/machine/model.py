"""The contract as dicts and lists: what a store answers, without a database.

Written from the contract, not from the store. What the contract leaves open (how many events a write appends
beyond the one that names it, the time, generated ids, what a branch takes over besides what is named) is
adopted from the store once and must then stay as it is.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from helix_sessions import exceptions as errors
from helix_sessions.types import Checkpoint, CommitResult, EventRecord, SessionState
from tests.contract.machine import writes as step_writes

OWNED = (
    "custom_state",
    "status",
    "step_count",
    "output",
    "error",
    "failure_reason",
    "interrupt_context",
    "pending_client_tool_calls",
    "suspended_awaiting_children",
    "suspended_step_id",
    "suspension_context",
    "completed_client_tool_calls",
    "client_tool_call_ownership",
    "tracing_context",
    "location",
    "expires_at",
    "user_id",
    "tags",
    "metadata",
    "workspace_ref",
)
"""What `save_state` takes from the caller."""


class Refused(Exception):
    """The call must be refused with one of these errors."""

    def __init__(self, *kinds: type[errors.HelixSessionsError]) -> None:
        super().__init__(*kinds)
        self.kinds = kinds


@dataclass
class Effect:
    """What a call that was accepted does to the log."""

    types: list[str] = field(default_factory=list)
    """Types of which an event must be appended; without any, nothing is."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    raised: bool = True
    """Whether the version rises."""
    runs: set[str | None] | None = None
    """The runs the events may name; the running one if not given."""
    exactly: bool = False
    """Whether no other event is appended."""


NOTHING = Effect(raised=False)


class Session:
    """One session."""

    def __init__(self, session_id: str, agent_type: str, **state: Any) -> None:
        defaults = SessionState(session_id=session_id, agent_type=agent_type)
        self.state: dict[str, Any] = {
            name: getattr(defaults, name) for name in SessionState.__dataclass_fields__
        }
        self.state.update(state)
        self.messages: list[dict[str, Any]] = []
        self.message_seqs: set[int] = set()
        self.log: list[EventRecord] = []
        self.runs: list[dict[str, Any]] = []
        self.checkpoints: list[dict[str, Any]] = []
        self.lines: list[list[Any]] = []
        """The messages there were at each checkpoint."""
        self.staged: list[list[Any]] = []
        self.refs: dict[str, dict[str, Any]] = {}
        self.flag: tuple[str | None] | None = None
        self.keys: dict[str, EventRecord] = {}
        self.commits: dict[str, tuple[Any, CommitResult | None]] = {}

    @property
    def running(self) -> str | None:
        return next((run["run_id"] for run in self.runs if run["status"] == "running"), None)

    @property
    def head(self) -> int:
        return len(self.log)

    def expect(self, version: int | None) -> None:
        if version is not None and version != self.state["version"]:
            raise Refused(errors.StaleState)

    def changed(self, *types: str, **effect: Any) -> Effect:
        """The version rises, and these are logged."""
        self.state["version"] += 1
        return Effect(types=list(types), **effect)

    # State

    def save(self, state: dict[str, Any], version: int | None) -> Effect:
        self.expect(version)
        if state["mode"] != self.state["mode"]:
            raise Refused(errors.ModeLocked)
        self._own(state)
        self._checkpoint("save", {})
        return self.changed("state_saved", "checkpoint_created")

    def _own(self, state: dict[str, Any]) -> None:
        for name in OWNED:
            self.state[name] = deepcopy(state[name])

    def merge(self, writes: list[dict[str, Any]], version: int | None) -> Effect:
        self.expect(version)
        self.state["custom_state"] = applied(self.state["custom_state"], writes)
        return self.changed("state_merged") if writes else NOTHING

    def enter(self, status: str, given: dict[str, Any]) -> Effect:
        given = {name: value for name, value in given.items() if value is not None}
        if status == "active":
            self.state.update(error=None, failure_reason=None, interrupt_context=None)
        self.state.update(given)
        self.state["status"] = status
        types, before = ["status_changed"], self.running
        if status in ("completed", "failed"):
            self.state.update(pending_client_tool_calls=None, suspended_awaiting_children=None)
            types += [] if self.flag is None else ["interrupt_cleared"]
            self.flag = None
        if status != "active" and before is not None:
            self._end_run(status, given)
            types.append("run_finished")
        return self.changed(*types, runs={before})

    def _end_run(self, status: str, given: dict[str, Any]) -> None:
        """A decision about the session ends the run that is under way."""
        ending = status if status in ("completed", "failed") else "interrupted"
        run = next(run for run in self.runs if run["status"] == "running")
        reason = given.get("failure_reason") or "session_failed" if ending == "failed" else None
        run.update(status=ending, end_sequence="run_finished", error=given.get("error", reason))

    def count(self, counter: str, version: int | None) -> Effect:
        self.expect(version)
        self.state[counter] += 1
        return self.changed("counter_raised")

    def patch(self, patch: dict[str, Any], version: int | None) -> Effect:
        self.expect(version)
        if not patch:
            return NOTHING
        metadata = {**self.state["metadata"], **patch}
        self.state["metadata"] = {
            key: value for key, value in metadata.items() if not (key in patch and value is None)
        }
        return self.changed("metadata_patched")

    # Commits and checkpoints

    def _checkpoint(self, source: str, meta: dict[str, Any]) -> None:
        self.lines.append(list(self.messages))
        self.checkpoints.append(
            {
                "checkpoint_id": meta.get("checkpoint_id"),
                "source": source,
                "step_id": meta.get("step_id"),
                "run_id": meta.get("run_id") or self.running,
                "metadata": meta.get("metadata", {}),
                "step_count": self.state["step_count"],
                "status": self.state["status"],
                "message_count": len(self.messages),
                "state": None,
            }
        )
        self.state["checkpoint_source"] = source

    def replayed(self, meta: dict[str, Any], content: Any) -> CommitResult | None:
        """The first result of a commit that is repeated."""
        made = self.commits.get(meta.get("checkpoint_id") or "")
        if made is None:
            return None
        if made[0] != content:
            raise Refused(errors.CommitConflict)
        return made[1]

    def commit(
        self, state: dict[str, Any], messages: list[dict[str, Any]], meta: dict[str, Any], version: int | None
    ) -> Effect:
        self.expect(version)
        if state["mode"] != self.state["mode"]:
            raise Refused(errors.ModeLocked, errors.InvalidWrites)
        step = meta.get("step_id")
        promoted = [change for change in self.staged if step in (None, change[0])]
        custom = state["custom_state"]
        for _, _, writes in promoted:
            custom = applied(custom, writes)
        self._own({**state, "custom_state": custom})
        self.messages += deepcopy(messages)
        self.staged = [change for change in self.staged if change not in promoted]
        self._checkpoint("staging" if promoted else "save", meta)
        types = ["state_saved", "checkpoint_created"] + (["staging_promoted"] if promoted else [])
        return self.changed(*types, messages=messages)

    def promote(self, step: str, meta: dict[str, Any], version: int | None) -> Effect:
        self.expect(version)
        promoted = [change for change in self.staged if change[0] == step]
        if not promoted:
            return NOTHING
        custom = self.state["custom_state"]
        for _, _, writes in promoted:
            custom = applied(custom, writes)
        self.state["custom_state"] = custom
        self.staged = [change for change in self.staged if change[0] != step]
        self._checkpoint("staging", {**meta, "step_id": step})
        return self.changed("staging_promoted", "checkpoint_created")

    def create_checkpoint(self, meta: dict[str, Any], version: int | None) -> Effect:
        self.expect(version)
        self._checkpoint("save", meta)
        return self.changed("checkpoint_created")

    # Messages

    def append(self, messages: list[dict[str, Any]], run_id: str | None, version: int | None) -> Effect:
        self.expect(version)
        if not messages:
            return NOTHING
        self.messages += deepcopy(messages)
        return self.changed(messages=messages, runs={run_id or self.running}, exactly=True)

    def truncate(self, count: int, version: int | None) -> Effect:
        self.expect(version)
        if count >= len(self.messages):
            return NOTHING
        del self.messages[count:]
        return self.changed("messages_truncated")

    # Runs

    def start_run(self, run_id: str | None, metadata: dict[str, Any], version: int | None) -> Effect:
        self.expect(version)
        wrong: list[type[errors.HelixSessionsError]] = []
        if self.running is not None:
            wrong.append(errors.RunInProgress)
        if run_id is not None and any(run["run_id"] == run_id for run in self.runs):
            wrong.append(errors.RunExists)
        if wrong:
            raise Refused(*wrong)
        self.runs.append(
            {
                "run_id": run_id,
                "turn": len(self.runs) + 1,
                "status": "running",
                "step_count": 0,
                "start_sequence": self.head,
                "end_sequence": None,
                "output": None,
                "error": None,
                "usage": None,
                "metadata": metadata,
            }
        )
        return self.changed("run_started")

    def update_run(self, run_id: str, status: str, given: dict[str, Any], version: int | None) -> Effect:
        self.expect(version)
        run = next((run for run in self.runs if run["run_id"] == run_id), None)
        if run is None:
            raise Refused(errors.RunNotFound)
        if run["status"] != "running":
            raise Refused(errors.RunEnded)
        run.update(status=status, **given)
        if status == "running":
            return self.changed(runs={run_id})
        run["end_sequence"] = "run_finished"
        return self.changed("run_finished", runs={run_id})

    # Staging

    def stage(self, step: str, call: str, writes: list[dict[str, Any]]) -> Effect:
        steps = step_writes.as_steps(writes)
        for change in self.staged:
            if change[:2] == [step, call]:
                change[2] = steps
                return NOTHING
        self.staged.append([step, call, steps])
        return NOTHING

    def discard(self, step: str | None) -> int:
        kept = [change for change in self.staged if step not in (None, change[0])]
        removed = len(self.staged) - len(kept)
        self.staged = kept
        return removed

    # Interrupts

    def set_flag(self, reason: str | None, version: int | None) -> Effect:
        self.expect(version)
        self.flag = (reason,)
        return self.changed("interrupt_requested")

    def clear_flag(self, version: int | None) -> Effect:
        self.expect(version)
        if self.flag is None:
            return NOTHING
        self.flag = None
        return self.changed("interrupt_cleared")

    # Sub-sessions

    def add_refs(self, refs: list[dict[str, Any]], version: int | None) -> Effect:
        self.expect(version)
        known = dict(self.refs)
        added = 0
        for ref in refs:
            key = ref["sub_session_id"]
            if key not in known:
                known[key] = deepcopy(ref)
                added += 1
            elif known[key] != ref:
                raise Refused(errors.SubSessionRefExists)
        self.refs = known
        return self.changed(*["subagent_spawned"] * added) if added else NOTHING

    def update_ref(self, key: str, changes: dict[str, Any], version: int | None) -> Effect:
        self.expect(version)
        if key not in self.refs:
            raise Refused(errors.SubSessionRefNotFound)
        self.refs[key].update(deepcopy(changes))
        return self.changed("subagent_updated") if changes else NOTHING

    # Events

    def emit(self, type_: str, data: Any, run_id: str | None) -> Effect:
        runs = {run_id or self.running}
        if told_role(type_, data) is None:
            return Effect(types=[type_], raised=False, runs=runs, exactly=True)
        message = data if "role" in data else {"role": type_.removesuffix("_message"), **data}
        self.messages.append(deepcopy(message))
        return self.changed(messages=[message], runs=runs, exactly=True)


def told_role(type_: str, data: Any) -> str | None:
    """The role of the message that this event is, if it is one."""
    if not (type_.endswith("_message") and isinstance(data, dict) and "content" in data):
        return None
    return str(data.get("role", type_.removesuffix("_message")))


class Model:
    """All sessions."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}

    def get(self, session_id: str) -> Session:
        if session_id not in self.sessions:
            raise Refused(errors.SessionNotFound)
        return self.sessions[session_id]

    def concerned(self, session_id: str, status: str) -> set[str]:
        """The other sessions that a decision about this one may change: its ephemeral children, when it fails
        or is interrupted, and theirs, and its parent, when it ends."""
        found: set[str] = set()
        waiting = [session_id] if status in ("failed", "interrupted") else []
        while waiting:
            refs = self.sessions[waiting.pop()].refs
            below = {
                key
                for key, ref in refs.items()
                if (ref["mode"], ref["location"]) == ("ephemeral", "local") and key in self.sessions
            }
            waiting += below - found
            found |= below
        if status in ("completed", "failed"):
            found.add(self.sessions[session_id].state["parent_session_id"])
        return found - {session_id, None}

    def create(self, session_id: str, **state: Any) -> Effect:
        wrong: list[type[errors.HelixSessionsError]] = []
        parent = state["parent_session_id"]
        if session_id in self.sessions:
            wrong.append(errors.SessionExists)
        if parent is not None and parent not in self.sessions:
            wrong.append(errors.SessionNotFound)
        if wrong:
            raise Refused(*wrong)
        if parent is not None:
            state["root_session_id"] = self.sessions[parent].state["root_session_id"] or parent
        self.sessions[session_id] = Session(session_id, **deepcopy(state))
        return Effect(types=["session_started"], raised=False)

    def delete(self, session_id: str) -> None:
        waiting, gone = [session_id], set()
        while waiting:
            key = waiting.pop()
            if key in gone or key not in self.sessions:
                continue
            gone.add(key)
            local = (ref for ref, it in self.sessions[key].refs.items() if it["location"] == "local")
            waiting += [
                *local,
                *(name for name, it in self.sessions.items() if it.state["parent_session_id"] == key),
            ]
        for key in gone:
            del self.sessions[key]

    def clone(
        self, source_id: str, new_id: str, checkpoint_id: str | None, message_count: int | None
    ) -> Effect:
        wrong: list[type[errors.HelixSessionsError]] = []
        source = self.sessions.get(source_id)
        if source is None:
            wrong.append(errors.SessionNotFound)
        if new_id in self.sessions:
            wrong.append(errors.SessionExists)
        then = None
        if source is not None and checkpoint_id is not None:
            then = next((it for it in source.checkpoints if it["checkpoint_id"] == checkpoint_id), None)
            if then is None:
                wrong.append(errors.CheckpointNotFound)
        if wrong or source is None:
            raise Refused(*wrong)
        state = source.state if then is None else vars_of(then["state"])
        line = source.messages if then is None else source.lines[source.checkpoints.index(then)]
        branch = Session(
            new_id,
            agent_type=source.state["agent_type"],
            mode=source.state["mode"],
            custom_state=deepcopy(state["custom_state"]),
            step_count=state["step_count"],
            forked_from=(source_id, checkpoint_id),
        )
        branch.messages = deepcopy(line[:message_count])
        self.sessions[new_id] = branch
        return Effect(types=["session_started"], messages=branch.messages, raised=False)

    def cleanup(self, everything: bool, session_ids: Iterable[str]) -> int:
        removed = 0
        for session_id in session_ids:
            session = self.sessions[session_id]
            if everything and session.running is None:
                removed += session.discard(None)
        return removed


def applied(document: dict[str, Any], writes: list[dict[str, Any]]) -> dict[str, Any]:
    try:
        return step_writes.apply(document, writes)
    except step_writes.CannotApply:
        raise Refused(errors.InvalidWrites) from None


def vars_of(value: SessionState | Checkpoint) -> dict[str, Any]:
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__}
