"""An agent's session as application code sees it: its summary, its definition, its state.

Values: frozen, compared by content. A changed one is made with `dataclasses.replace`, or with the methods of
`AgentSession`. Where one goes in, a dict with the same keys does as well.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias, TypeVar, overload

from helix_sessions.exceptions import InvalidInput

T = TypeVar("T")
Message = Mapping[str, Any]
StoredAt: TypeAlias = Annotated[datetime | None, datetime]
"""A time of the store: `None` in a value that is not stored yet, never in one that the API sends."""

AGENT_STATUSES: Final = ("active", "suspended", "completed", "failed", "deleted")


class Stored:
    """Messages in the database, as they were when their session was loaded."""

    __slots__ = ("_read", "count", "messages")

    def __init__(
        self, count: int, read: Callable[[], list[Any]], messages: Sequence[Message] | None = None
    ) -> None:
        self.count = count
        self.messages: Sequence[Message] | None = messages
        """The messages after the first read; `None` before."""
        self._read = read

    def all(self) -> Sequence[Message]:
        """The messages, read from the database on first access."""
        if self.messages is None:
            self.messages = self._read() if self.count else []
        return self.messages


class Transcript(Sequence[Message]):
    """The messages of a session: stored ones, read on first access, followed by new ones.

    It never changes; `+` and a slice `[:n]` make another, and neither reads anything. It equals a list or
    tuple of the same messages. In async code, `await transcript.aload()` before looking.
    """

    __slots__ = ("added", "kept", "stored")

    def __init__(self, added: Iterable[Message] = (), *, stored: Stored | None = None, kept: int = 0) -> None:
        self.stored = stored
        self.kept = kept
        """How many of the stored messages belong to it."""
        self.added = tuple(added)

    @classmethod
    def of(cls, messages: "Iterable[Message]") -> "Transcript":
        """A transcript itself, or one of these messages."""
        if isinstance(messages, cls):
            return messages
        if isinstance(messages, str | Mapping) or not isinstance(messages, Iterable):
            raise InvalidInput("Messages must be a list of objects.")
        return cls(messages)

    async def aload(self) -> "Transcript":
        """Read what is stored without blocking the event loop; returns this transcript."""
        from asgiref.sync import sync_to_async

        await sync_to_async(self._kept)()
        return self

    def _kept(self) -> Sequence[Message]:
        return self.stored.all()[: self.kept] if self.stored is not None and self.kept else ()

    def __len__(self) -> int:
        return self.kept + len(self.added)

    def __iter__(self) -> Iterator[Message]:
        yield from self._kept()
        yield from self.added

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> "Transcript": ...
    def __getitem__(self, index: int | slice) -> "Message | Transcript":
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if (start, step) != (0, 1):
                return Transcript(list(self)[index])
            kept = min(self.kept, stop)
            return Transcript(self.added[: max(0, stop - self.kept)], stored=self.stored, kept=kept)
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError("There is no such message.")
        return self.added[place - self.kept] if place >= self.kept else self._kept()[place]

    def __add__(self, messages: Iterable[Message]) -> "Transcript":
        return Transcript((*self.added, *messages), stored=self.stored, kept=self.kept)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transcript | list | tuple):
            return NotImplemented
        if len(self) != len(other):
            return False
        if isinstance(other, Transcript) and (self.stored, self.kept) == (other.stored, other.kept):
            return self.added == other.added
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Transcript of {len(self)} messages>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Transcript, (tuple(self),)


@dataclass(frozen=True, slots=True)
class Budget:
    """What one execution may use. It is checked between steps; `None` is no limit."""

    max_steps: int | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None
    max_cost: float | None = None
    deadline: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_tokens"):
            _check_number(name, getattr(self, name), int)
        for name in ("max_seconds", "max_cost"):
            _check_number(name, getattr(self, name), int | float)
        if isinstance(self.deadline, str):
            object.__setattr__(self, "deadline", _moment(self.deadline))
        if self.deadline is not None and (
            not isinstance(self.deadline, datetime) or self.deadline.utcoffset() is None
        ):
            raise InvalidInput("The deadline of a budget must be an aware datetime.")


def narrower(one: Budget | None, other: Budget | None) -> Budget | None:
    """The smaller of each limit of two budgets."""
    if one is None or other is None:
        return one or other
    names = [each.name for each in fields(Budget)]
    both = {name: [v for v in (getattr(one, name), getattr(other, name)) if v is not None] for name in names}
    return Budget(**{name: min(values) for name, values in both.items() if values})


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    """The definition of a session's agent."""

    name: str
    """The kind of agent; the session's `agent_type`."""
    label: str | None = None
    """The name to display."""
    system_prompt: str = ""
    model: Any = None
    budget: Budget | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", optional(Budget, self.budget))


@dataclass(frozen=True, slots=True)
class Execution:
    """The last execution of an agent in a session."""

    status: str
    """`running`, `completed`, `failed`, `budget_exceeded`, `interrupted`, or `waiting` for others."""
    error: str | None = None
    """The error, or the limit that was reached."""
    steps: int = 0
    """Calls of the model."""
    usage: dict[str, Any] | None = None
    """The sum of what the steps reported."""


@dataclass(frozen=True, slots=True)
class AgentState:
    """The state of a session. `messages` are read from the database on first access."""

    messages: Sequence[Message] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    system_prompt: str = ""
    model: Any = None
    budget: Budget | None = None
    execution_count: int = 0
    """How many executions have started."""
    execution: Execution | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", Transcript.of(self.messages))
        object.__setattr__(self, "budget", optional(Budget, self.budget))
        object.__setattr__(self, "execution", optional(Execution, self.execution))


@dataclass(frozen=True, slots=True)
class AgentSessionInfo:
    """The summary of a session."""

    session_id: str
    parent_id: str | None
    status: str
    """`active`, `suspended`, `completed`, `failed`, `deleted`; or `interrupted`, which others may make it."""
    version: int
    """Rises by one with each save; 0 for a session that is not stored yet."""
    agent_name: str
    agent_label: str | None
    created_at: StoredAt
    updated_at: StoredAt


@dataclass(frozen=True, slots=True)
class AgentSession:
    """A session as it was loaded, or as an action wants it to be saved."""

    info: AgentSessionInfo
    definition: AgentDefinition
    state: AgentState

    @property
    def session_id(self) -> str:
        return self.info.session_id

    @property
    def version(self) -> int:
        return self.info.version

    @property
    def status(self) -> str:
        return self.info.status

    def with_status(self, status: str) -> "AgentSession":
        """The session with another status. No other method changes the status."""
        if status not in AGENT_STATUSES:
            raise InvalidInput(f"The status must be one of {', '.join(AGENT_STATUSES)}.")
        return replace(self, info=replace(self.info, status=status))

    def with_state(self, state: AgentState | None = None, /, **changes: Any) -> "AgentSession":
        """The session with another state, or with some fields of it changed."""
        return replace(self, state=replace(self.state if state is None else state, **changes))

    def with_metadata(self, key: str, value: Any) -> "AgentSession":
        """The session with one key of its metadata set."""
        return self.with_state(metadata={**self.state.metadata, key: value})

    def with_messages(self, *messages: Message) -> "AgentSession":
        """The session with more messages at the end of its transcript."""
        return self.with_state(messages=Transcript.of(self.state.messages) + messages)


def value_of(kind: type[T], value: Any) -> T:
    """A value itself, or made from a dict with the same keys."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f"A {kind.__name__} or a dict with its keys is needed, not {type(value).__name__}."
        )
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    unknown = [str(key) for key in value if key not in known]
    if unknown:
        raise InvalidInput(f"A {kind.__name__} has no {unknown[0]!r:.80}.")
    try:
        return kind(**value)
    except TypeError as error:
        raise InvalidInput(f"This is no {kind.__name__}: {error}.") from None


def optional(kind: type[T], value: Any) -> T | None:
    """`value_of`, where `None` is a value."""
    return None if value is None else value_of(kind, value)


def _check_number(name: str, value: Any, kinds: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < 2**63:
        raise InvalidInput(f"{name} of a budget must be a number that is not negative.")


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput("The deadline of a budget must be a time in ISO 8601.") from None
