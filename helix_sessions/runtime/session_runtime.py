"""Load, act, save, announce: one sentence for each change of a session."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from asgiref.sync import sync_to_async

from helix_sessions.exceptions import InvalidInput
from helix_sessions.runtime import announcements
from helix_sessions.runtime.actions.base import Action, ActionContext, StagedAction
from helix_sessions.runtime.hooks import Hook, Hooks
from helix_sessions.runtime.loop.io import IO, Inline, OnLoop, finished
from helix_sessions.store import SessionStore
from helix_sessions.store.agents import agent_sessions
from helix_sessions.store.agents.agent_sessions import Loaded
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.operation import operation
from helix_sessions.types import Page
from helix_sessions.values.agents import AgentDefinition, AgentSession, AgentSessionInfo, AgentState, value_of

load = operation(agent_sessions.load, traced=False)
save = operation(agent_sessions.save, traced=False)
create = operation(agent_sessions.create, traced=False)
fork = operation(agent_sessions.fork, traced=False)

_log = logging.getLogger("helix_sessions.runtime")

_FILTERS = {"agent_name": "agent_type", "parent_id": "parent_session_id"}


class SessionRuntime:
    """Sessions for application code: each call loads, changes or lists them, and tells what happened.

    Conflicts are reported, not resolved: an action on a session that another writer has saved meanwhile
    raises `SessionConflict`, and nothing of it is saved. Nothing is ever tried again.
    """

    def __init__(self, store: SessionStore | None = None, hooks: Iterable[Hook] = ()) -> None:
        self.store = SessionStore() if store is None else store
        self._hooks = Hooks(hooks)

    def create(
        self,
        definition: AgentDefinition | Mapping[str, Any],
        *,
        session_id: str | None = None,
        seed: AgentState | Mapping[str, Any] | None = None,
    ) -> AgentSession:
        """Create a session, at version 1; a used id raises `SessionExists`.

        `seed` is the state it begins with. Without one, system prompt, model and budget are the definition's.
        """
        session = agent_sessions.unsaved(
            value_of(AgentDefinition, definition),
            session_id=session_id,
            seed=None if seed is None else value_of(AgentState, seed),
        )
        return self._create(session)[1]

    def execute(
        self, session_id: str, action: Action, *, expected_version: int | None = None
    ) -> AgentSession:
        """Load the session, let the action act on it, save what it returns; returns the session as saved.

        With `expected_version`, a session of another version raises `StaleState` before anything is done.
        """
        return finished(self._execute(Inline(), session_id, action, expected_version))

    def get_session(self, session_id: str) -> AgentSession:
        """The session as it is now, one with the status `deleted` included."""
        return self._load(session_id)[1]

    def get_session_info(self, session_id: str) -> AgentSessionInfo:
        """The session in a line."""
        return self._load(session_id)[1].info

    def list_sessions(self, **filters: Any) -> Page[AgentSessionInfo]:
        """Sessions in a line each, newest first, with the filters of `SessionStore.list_sessions`.

        Those with the status `deleted` are listed only with `status="deleted"`.
        """
        return agent_sessions.page(
            self.store, {_FILTERS.get(name, name): value for name, value in filters.items()}
        )

    async def acreate(
        self,
        definition: AgentDefinition | Mapping[str, Any],
        *,
        session_id: str | None = None,
        seed: AgentState | Mapping[str, Any] | None = None,
    ) -> AgentSession:
        """`create`, to be awaited."""
        return await sync_to_async(self.create)(definition, session_id=session_id, seed=seed)

    async def aexecute(
        self, session_id: str, action: Action, *, expected_version: int | None = None
    ) -> AgentSession:
        """`execute`, to be awaited. While an async agent answers, no thread is held."""
        return await self._execute(OnLoop(), session_id, action, expected_version)

    async def aget_session(self, session_id: str) -> AgentSession:
        """`get_session`, to be awaited."""
        return await sync_to_async(self.get_session)(session_id)

    async def aget_session_info(self, session_id: str) -> AgentSessionInfo:
        """`get_session_info`, to be awaited."""
        return await sync_to_async(self.get_session_info)(session_id)

    async def alist_sessions(self, **filters: Any) -> Page[AgentSessionInfo]:
        """`list_sessions`, to be awaited."""
        return await sync_to_async(self.list_sessions)(**filters)

    async def _execute(
        self, io: IO, session_id: str, action: Action, expected_version: int | None
    ) -> AgentSession:
        if not callable(getattr(action, "execute_on", None)):
            raise InvalidInput("An action needs a method execute_on.")
        name, expected = type(action).__name__, inputs.expected_version(expected_version)
        loaded, before = await io.db(self._load, session_id, expected)
        context = _RuntimeContext(self, io, loaded, name)
        if isinstance(action, StagedAction):
            after = await action.stages(before, context)
        else:
            after = await io.db(action.execute_on, before)
        return await io.db(self._finish, before, after, context, name)

    def _finish(
        self, before: AgentSession, after: Any, context: "_RuntimeContext", name: str
    ) -> AgentSession:
        """Save what an action made of a session."""
        if not isinstance(after, AgentSession):
            raise InvalidInput(f"An action must return an AgentSession, not a {type(after).__name__}.")
        announcements.action_executed(SessionRuntime, before, after, name)
        after = self._hooks.run("after_action", after)
        if after.version == 0 or after.session_id != before.session_id:
            return self._create(after, made_of=context.loaded)[1]
        return self._save(context.loaded, after, name, writes=context.writes, output=context.output)[1]

    def _load(self, session_id: str, expected_version: int | None = None) -> tuple[Loaded, AgentSession]:
        try:
            loaded = load(self.store, session_id)
        except Exception as error:
            announcements.load_failed(SessionRuntime, session_id, error)
            raise
        announcements.loaded(SessionRuntime, loaded.session)
        agent_sessions.check_version(loaded, expected_version)
        return loaded, self._hooks.run("after_load", loaded.session)

    def _save(
        self, loaded: Loaded, session: AgentSession, action: str, **more: Any
    ) -> tuple[Loaded, AgentSession]:
        session = self._hooks.run("before_save", session)
        try:
            saved = save(self.store, loaded, session, action=action, **more)
        except Exception as error:
            announcements.save_failed(SessionRuntime, session.session_id, error)
            raise
        announcements.saved(SessionRuntime, saved.session, self.store.using)
        return saved, self._after("after_save", saved.session)

    def _create(self, session: AgentSession, made_of: Loaded | None = None) -> tuple[Loaded, AgentSession]:
        session = self._hooks.run("before_create", session)
        session = self._hooks.run("before_save", session)
        try:
            saved = create(self.store, session) if made_of is None else fork(self.store, made_of, session)
        except Exception as error:
            announcements.save_failed(SessionRuntime, session.session_id, error)
            raise
        announcements.saved(SessionRuntime, saved.session, self.store.using)
        return saved, self._after("after_create", self._after("after_save", saved.session))

    def _after(self, stage: str, session: AgentSession) -> AgentSession:
        """What hooks make of a session that is saved. One that raises does not undo that, and says so."""
        try:
            return self._hooks.run(stage, session)
        except Exception as error:
            saved = f"Session {session.session_id!r} was saved at version {session.version}"
            error.add_note(f"{saved}; a hook at {stage} raised this afterwards.")
            _log.error("%s; a hook at %s raised afterwards.", saved, stage, exc_info=error)
            raise


class _RuntimeContext(ActionContext):
    """The context of an action that this runtime executes."""

    def __init__(self, runtime: SessionRuntime, io: IO, loaded: Loaded, action: str) -> None:
        super().__init__(runtime.store, io)
        self._runtime = runtime
        self._action = action
        self.loaded = loaded

    def healing(self, session: AgentSession) -> list[dict[str, Any]]:
        """As the session's row knows them."""
        return agent_sessions.healing(self.loaded, session)

    async def save(self, session: AgentSession) -> AgentSession:
        """Save on the way, as the last save does it; the session as it is stored now."""
        self.loaded, _ = await self.io.db(self._runtime._save, self.loaded, session, self._action)
        return self.loaded.session
