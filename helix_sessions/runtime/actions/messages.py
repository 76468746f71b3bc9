"""Saying something to an agent."""

from dataclasses import dataclass
from typing import Any

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput
from helix_sessions.messages.errors import in_words
from helix_sessions.runtime import errors
from helix_sessions.runtime.actions.base import ActionContext, StagedAction
from helix_sessions.runtime.collected import CollectedJournal
from helix_sessions.runtime.loop.endings import budget_exceeded, ended_by_spend
from helix_sessions.runtime.loop.journal import OverSpent
from helix_sessions.runtime.loop.run_loop import Bounds, RunLoop
from helix_sessions.runtime.loop.stops import Stop
from helix_sessions.runtime.outcomes import MOST_OF_AN_ERROR, read, storable
from helix_sessions.store.driving.boundaries import Ending
from helix_sessions.store.engine import inputs
from helix_sessions.types import UNSET, Message
from helix_sessions.values.agents import AgentSession, Execution


@dataclass(frozen=True, slots=True)
class SendMessage(StagedAction):
    """Store what a user said, then let the agent answer.

    The message is saved before the agent is called, so neither a crash nor a conflict loses it, and no lock
    is held while the model answers. What the agent came to is the second save. An agent that fails leaves
    an execution that says so; the status of the session stays as it is.
    """

    message: str | Message
    """A string that a user said, or a message."""
    agent: Any
    """An object with `run_turn(turn)`, or a callable that takes the session; sync or async."""

    def __post_init__(self) -> None:
        if self.message is None:
            raise InvalidInput("There is no message to send.")
        inputs.optional_turn_message(self.message)
        if not callable(getattr(self.agent, "run_turn", self.agent)):
            raise InvalidInput("An agent has a run_turn, or is a callable that takes the session.")

    async def stages(self, session: AgentSession, context: ActionContext) -> AgentSession:
        """The message, then the outcome."""
        said = self.message if not isinstance(self.message, str) else _by_user(self.message)
        state = session.state
        healed = await context.io.db(context.healing, session)
        asked = session.with_messages(*healed, documents.load(documents.dump(dict(said))))
        begun = asked.with_state(execution_count=state.execution_count + 1, execution=Execution("running"))
        saved = await context.save(begun)
        journal = CollectedJournal(context.io, context.store, saved, self.agent, Stop())
        execution = await self._execute(journal, context)
        return journal.current().with_state(execution=execution)

    async def _execute(self, journal: CollectedJournal, context: ActionContext) -> Execution:
        try:
            status, error = await self._drive(journal, context)
            await context.io.db(journal.check_writes)
        except Exception as failure:
            journal.writes.clear()
            status, error = "failed", storable(f"{type(failure).__name__}: {failure}")
        ending = journal.ending
        context.writes = journal.writes
        if status == "completed" and ending is not None and ending.output is not None:
            context.output = ending.output
        else:
            context.output = UNSET
        progress = journal.progress
        return Execution(status, error, progress.turns, progress.usage)

    async def _drive(self, journal: CollectedJournal, context: ActionContext) -> tuple[str, str | None]:
        """Let the agent answer through the loop; how that ended, and why."""
        ending = budget_exceeded(journal, journal.definition)
        if ending is None and not hasattr(self.agent, "run_turn"):
            return await self._call(journal, context)
        if ending is None:
            loop = RunLoop(context.io, self.agent, journal, journal.stop, Bounds(turn_limit=None))
            await loop.run()
            ending = journal.ending
        if journal.waits:
            return "waiting", None
        return _status(ending)

    async def _call(self, journal: CollectedJournal, context: ActionContext) -> tuple[str, str | None]:
        """A callable answers once, with as many messages as it likes."""
        try:
            await context.io.db(journal.ask_spend)
        except OverSpent as error:
            journal.ending = ended_by_spend(error.limits, journal.spent())
            return _status(journal.ending)
        value = await context.io.ask(lambda: self.agent(journal.current()), journal.stop)
        answer = read(value, one_message=False)
        journal.progress.turns += 1
        journal.progress.usage = answer.usage
        journal.messages.extend(answer.messages)
        journal.writes.extend(answer.writes)
        failed = answer.error is not None
        journal.ending = Ending(status="failed" if failed else "completed", output=answer.output)
        return ("failed", answer.error) if failed else ("completed", None)


def _status(ending: Ending | None) -> tuple[str, str | None]:
    if ending is None:
        return "completed", None
    if ending.error is None:
        return ending.status, None
    exceeded = ending.failure_reason == errors.BUDGET_EXCEEDED
    return "budget_exceeded" if exceeded else ending.status, in_words(ending.error)[:MOST_OF_AN_ERROR]


def _by_user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
