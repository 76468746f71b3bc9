"""Made by `python -m tools.async_stub` from the signatures of `SessionStore`."""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, overload

from helix_sessions.models.runs import RunQuerySet
from helix_sessions.models.sessions import SessionQuerySet
from helix_sessions.store.checkpoints import MetaLike
from helix_sessions.stream.feeds import AsyncTail
from helix_sessions.types import (
    JSON,
    Answer,
    AnswerLink,
    AppendResult,
    ArchiveSummary,
    AskedCall,
    AuditSummary,
    CasMismatch,
    CasOk,
    Checkpoint,
    ChildWait,
    CleanupSummary,
    CommitResult,
    Compaction,
    CompactionPolicy,
    ContextOutcome,
    ContextSource,
    DebrisSummary,
    ErasureSummary,
    EventRecord,
    EventTexts,
    Finding,
    Fragment,
    InputReceipt,
    InstructionsRevision,
    InterruptRequest,
    Lease,
    Message,
    MessagePage,
    Messages,
    MessageTexts,
    ModelContext,
    Note,
    Occupancy,
    Page,
    PendingCall,
    ProjectedMessage,
    PruneSummary,
    Recovery,
    Resumption,
    RetentionPolicy,
    RotationSummary,
    Run,
    SessionHead,
    SessionState,
    SessionSummary,
    StagedChange,
    Submission,
    SubSessionRef,
    Summarize,
    TransferSummary,
    Turn,
    Unset,
    Wake,
    Writable,
)
from helix_sessions.types import ContextEpoch as Epoch
from helix_sessions.types import Messages as MessageList

class AsyncSessionStore:
    def __init__(self, using: str = ..., *, owned_by: Any = ...) -> None: ...
    @property
    def using(self) -> str: ...
    @overload
    def subscribe(
        self, session_id: str, *, after: int | None = ..., fragments: Literal[False] = ...
    ) -> AsyncTail[EventRecord]: ...
    @overload
    def subscribe(
        self, session_id: str, *, after: int | None = ..., fragments: bool
    ) -> AsyncTail[EventRecord | Fragment]: ...
    def fenced(self, lease: Lease) -> AsyncFencedStore: ...
    async def ensure_session(
        self, session_id: str | None = ..., *, agent_type: str, **fields: Any
    ) -> SessionState: ...
    async def detach(self, session_id: str) -> None: ...
    async def publish_fragment(self, session_id: str, data: JSON) -> None: ...
    async def reconcile_context(
        self, session_id: str, sources: Iterable[ContextSource], *, expected_version: int | None = ...
    ) -> ContextOutcome: ...
    async def get_context(self, session_id: str) -> ModelContext: ...
    async def get_context_epoch(self, session_id: str) -> Epoch | None: ...
    async def move_session(
        self, session_id: str, location: JSON, *, expected_version: int | None = ...
    ) -> SessionState: ...
    async def load_state(self, session_id: str) -> SessionState: ...
    async def save_state(
        self, session_id: str, state: SessionState, *, expected_version: int | None = ...
    ) -> SessionState: ...
    async def merge_custom_state(
        self, session_id: str, writes: Iterable[Any], *, expected_version: int | None = ...
    ) -> SessionState: ...
    async def attach(self, session_id: str, *, agent_type: str = ...) -> int: ...
    async def emit_event(
        self,
        session_id: str,
        type: str,
        data: JSON = ...,
        *,
        turn_id: str | None = ...,
        run_id: str | None = ...,
        idempotency_key: str | None = ...,
    ) -> EventRecord: ...
    async def get_events(
        self,
        session_id: str,
        from_seq: int | None = ...,
        to_seq: int | None = ...,
        *,
        types: Iterable[str] | None = ...,
        run_id: str | None = ...,
        limit: int | None = ...,
    ) -> list[EventRecord]: ...
    async def get_event_texts(
        self,
        session_id: str,
        from_seq: int | None = ...,
        to_seq: int | None = ...,
        *,
        types: Iterable[str] | None = ...,
        run_id: str | None = ...,
        limit: int,
        cursor: str | None = ...,
    ) -> EventTexts: ...
    @staticmethod
    def project_messages(events: Iterable[EventRecord]) -> list[ProjectedMessage]: ...
    async def compact(
        self,
        session_id: str,
        summarize: Summarize,
        policy: CompactionPolicy | dict[str, Any],
        *,
        reason: str = ...,
        expected_version: int | None = ...,
    ) -> Compaction | None: ...
    async def list_compactions(self, session_id: str) -> list[Compaction]: ...
    async def expired_session_cleanup(
        self,
        *,
        page_size: int = ...,
        limit: int | None = ...,
        agent_type: str | None = ...,
        dry_run: bool = ...,
        now: datetime | None = ...,
        rest: float = ...,
        on_progress: Callable[[CleanupSummary], None] | None = ...,
        should_stop: Callable[[], bool] | None = ...,
    ) -> CleanupSummary: ...
    async def update_status(
        self,
        session_id: str,
        status: str,
        *,
        error: str | None = ...,
        failure_reason: str | None = ...,
        interrupt_context: JSON = ...,
        output: JSON | Unset = ...,
        expected_version: int | None = ...,
    ) -> int: ...
    async def compare_and_set_status(
        self,
        session_id: str,
        expected_statuses: str | Iterable[str],
        new_status: str,
        *,
        expected_version: int | None = ...,
        interrupt_context: JSON = ...,
        error: str | None = ...,
        failure_reason: str | None = ...,
    ) -> CasOk | CasMismatch: ...
    async def increment_step_count(self, session_id: str, *, expected_version: int | None = ...) -> int: ...
    async def increment_resume_count(self, session_id: str, *, expected_version: int | None = ...) -> int: ...
    async def save_state_and_promote_staging(
        self,
        session_id: str,
        state: SessionState,
        append_messages: Messages = ...,
        checkpoint_meta: MetaLike = ...,
        *,
        expected_version: int | None = ...,
    ) -> CommitResult: ...
    async def append_messages(
        self,
        session_id: str,
        messages: MessageList,
        *,
        run_id: str | None = ...,
        expected_version: int | None = ...,
    ) -> AppendResult: ...
    async def get_messages(
        self, session_id: str, *, offset: int = ..., limit: int | None = ..., newest_first: bool = ...
    ) -> MessagePage: ...
    async def get_message_texts(
        self,
        session_id: str,
        *,
        offset: int = ...,
        limit: int | None = ...,
        newest_first: bool = ...,
        cursor: str | None = ...,
    ) -> MessageTexts: ...
    async def get_message_count(self, session_id: str) -> int: ...
    async def truncate_messages(
        self, session_id: str, count: int, *, expected_version: int | None = ...
    ) -> int: ...
    async def put_notes(
        self,
        session_id: str,
        notes: Mapping[str, JSON],
        *,
        append_messages: Messages = ...,
        run_id: str | None = ...,
        run_ids: Mapping[str, str | None] | None = ...,
        quietly: bool = ...,
        expected_version: int | None = ...,
    ) -> AppendResult: ...
    async def get_notes(
        self,
        session_id: str,
        *,
        keys: Iterable[str] | None = ...,
        prefix: str = ...,
        last_first: bool = ...,
        limit: int | None = ...,
    ) -> list[Note]: ...
    async def remove_notes(
        self, session_id: str, keys: Iterable[str], *, expected_version: int | None = ...
    ) -> int: ...
    async def find_notes(self, *, run_id: str) -> list[Note]: ...
    async def create_run(
        self,
        session_id: str,
        *,
        run_id: str | None = ...,
        metadata: Mapping[str, JSON] | None = ...,
        expected_version: int | None = ...,
    ) -> Run: ...
    async def update_run_status(
        self,
        session_id: str,
        run_id: str,
        status: str,
        *,
        step_count: int | None = ...,
        output: JSON | Unset = ...,
        error: str | None = ...,
        usage: JSON = ...,
        expected_version: int | None = ...,
    ) -> Run: ...
    async def get_current_run(self, session_id: str) -> Run | None: ...
    async def get_run(self, session_id: str, run_id: str) -> Run: ...
    async def list_runs(
        self, session_id: str, *, limit: int = ..., cursor: str | None = ...
    ) -> Page[Run]: ...
    async def query_runs(self, session_id: str) -> RunQuerySet: ...
    async def page_of_runs(
        self, rows: RunQuerySet, *, limit: int = ..., cursor: str | None = ...
    ) -> Page[Run]: ...
    async def create_checkpoint(
        self, session_id: str, meta: MetaLike = ..., *, expected_version: int | None = ...
    ) -> Checkpoint: ...
    async def get_latest_checkpoint(self, session_id: str) -> Checkpoint | None: ...
    async def get_checkpoint(self, session_id: str, checkpoint_id: str) -> Checkpoint: ...
    async def list_checkpoints(
        self, session_id: str, *, limit: int = ..., cursor: str | None = ..., offset: int | None = ...
    ) -> Page[Checkpoint]: ...
    async def cleanup_debris(
        self,
        *,
        staged_for: timedelta = ...,
        stuck_for: timedelta = ...,
        wake: bool = ...,
        dry_run: bool = ...,
        should_stop: Callable[[], bool] | None = ...,
    ) -> DebrisSummary: ...
    async def stage_changes(
        self, session_id: str, step_id: str, tool_call_id: str, writes: Iterable[Any]
    ) -> StagedChange: ...
    async def get_staged_changes(self, session_id: str, step_id: str | None = ...) -> list[StagedChange]: ...
    async def list_staged_changes(
        self, session_id: str, *, step_id: str | None = ..., limit: int = ..., cursor: str | None = ...
    ) -> Page[StagedChange]: ...
    async def has_staged_changes(self, session_id: str, step_id: str | None = ...) -> bool: ...
    async def promote_staging(
        self, session_id: str, step_id: str, meta: MetaLike = ..., *, expected_version: int | None = ...
    ) -> CommitResult: ...
    async def discard_staging(self, session_id: str, step_id: str | None = ...) -> int: ...
    async def cleanup_orphaned_staging(
        self, *, older_than: timedelta, session_id: str | None = ...
    ) -> int: ...
    async def wake(self, session_id: str) -> Wake: ...
    async def answer_once(self, user: Any, key: str, digest: str, work: Callable[[], Answer]) -> Answer: ...
    async def prune_idempotency_keys(self) -> int: ...
    async def set_interrupt_flag(
        self, session_id: str, reason: str | None = ..., *, expected_version: int | None = ...
    ) -> int: ...
    async def check_interrupt_flag(
        self, session_id: str, *, expected_version: int | None = ...
    ) -> InterruptRequest | None: ...
    async def peek_interrupt_flag(self, session_id: str) -> InterruptRequest | None: ...
    async def clear_interrupt_flag(self, session_id: str, *, expected_version: int | None = ...) -> int: ...
    async def admit_input(
        self,
        session_id: str,
        prompt: JSON,
        *,
        input_id: str | None = ...,
        delivery: str = ...,
        resume: bool = ...,
        expected_version: int | None = ...,
    ) -> InputReceipt: ...
    async def list_inputs(self, session_id: str, *, pending: bool = ...) -> list[InputReceipt]: ...
    async def page_of_inputs(
        self, session_id: str, *, pending: bool = ..., limit: int = ..., cursor: str | None = ...
    ) -> Page[InputReceipt]: ...
    async def count_inputs(self, session_id: str, *, after: int = ...) -> dict[str, int]: ...
    async def list_unattended(
        self, *, agent_types: Collection[str] | None = ..., limit: int = ...
    ) -> list[SessionSummary]: ...
    async def cancel_input(
        self, session_id: str, input_id: str, *, expected_version: int | None = ...
    ) -> InputReceipt: ...
    async def set_delivery(
        self, session_id: str, input_id: str, delivery: str, *, expected_version: int | None = ...
    ) -> InputReceipt: ...
    async def promote_inputs(
        self, session_id: str, mode: str, *, expected_version: int | None = ...
    ) -> list[InputReceipt]: ...
    async def acquire_lease(self, session_id: str, owner: str, ttl: float) -> Lease: ...
    async def renew_lease(self, lease: Lease, ttl: float) -> Lease: ...
    async def release_lease(self, lease: Lease) -> None: ...
    async def get_lease(self, session_id: str) -> Lease | None: ...
    async def is_lease_live(self, lease: Lease) -> bool: ...
    async def get_occupancy(self, session_id: str) -> Occupancy: ...
    async def list_abandoned(
        self, *, agent_types: Collection[str] | None = ..., limit: int = ...
    ) -> list[SessionSummary]: ...
    async def add_sub_session_refs(
        self,
        session_id: str,
        refs: Iterable[SubSessionRef | Mapping[str, Any]],
        *,
        expected_version: int | None = ...,
    ) -> int: ...
    async def update_sub_session_ref(
        self, session_id: str, sub_session_id: str, *, expected_version: int | None = ..., **changes: Any
    ) -> SubSessionRef: ...
    async def list_sub_session_refs(
        self, session_id: str, *, limit: int = ..., cursor: str | None = ...
    ) -> Page[SubSessionRef]: ...
    async def get_sub_session_refs(self, session_id: str) -> list[SubSessionRef]: ...
    async def begin_turn(
        self,
        session_id: str,
        *,
        message: str | Message | None = ...,
        agent_type: str | None = ...,
        branch: tuple[str, str | None] | None = ...,
        custom_state: Mapping[str, JSON] | None = ...,
        run_id: str | None = ...,
        expected_version: int | None = ...,
    ) -> Turn: ...
    async def suspend(
        self,
        session_id: str,
        kind: str,
        *,
        state: SessionState,
        run_id: str,
        append_messages: Messages = ...,
        pending_calls: Sequence[PendingCall | Mapping[str, Any]] = ...,
        awaiting_children: Sequence[ChildWait | Mapping[str, Any]] = ...,
        suspended_step_id: str | None = ...,
        suspension_context: JSON = ...,
        checkpoint_meta: MetaLike = ...,
        expected_version: int | None = ...,
    ) -> CommitResult: ...
    async def resume(
        self,
        session_id: str,
        *,
        message: str | Message | None = ...,
        expected_version: int | None = ...,
        run_id: str | None = ...,
    ) -> Resumption: ...
    async def open_step(
        self, session_id: str, step_id: str, message: Message, *, run_id: str, writes: Iterable[Any] = ...
    ) -> AppendResult: ...
    async def end_run(
        self,
        session_id: str,
        run_id: str,
        status: str,
        *,
        step_id: str | None = ...,
        messages: Messages = ...,
        writes: Iterable[Any] = ...,
        discard: bool = ...,
        step_count: int | None = ...,
        output: JSON = ...,
        error: str | None = ...,
        failure_reason: str | None = ...,
        usage: JSON = ...,
    ) -> Run: ...
    async def recover_run(
        self, session_id: str, policy: str = ..., *, run_id: str | None = ...
    ) -> Recovery | None: ...
    async def settle_child(
        self,
        child_id: str,
        status: str,
        *,
        output: JSON = ...,
        error: str | None = ...,
        parent_session_id: str | None = ...,
        expected_version: int | None = ...,
    ) -> None: ...
    async def create_answer_link(
        self, session_id: str, tool_call_id: str, *, lifetime: timedelta | None = ...
    ) -> AnswerLink: ...
    async def read_answer_link(self, token: str) -> AskedCall: ...
    async def submit_by_answer_link(
        self,
        token: str,
        *,
        result: JSON | Unset = ...,
        error: str | None = ...,
        approved: bool | None = ...,
        reason: str | None = ...,
    ) -> Submission: ...
    async def submit_tool_result(
        self,
        session_id: str,
        tool_call_id: str,
        *,
        result: JSON | Unset = ...,
        error: str | None = ...,
        approved: bool | None = ...,
        approval_id: str | None = ...,
        reason: str | None = ...,
        expected_version: int | None = ...,
    ) -> Submission: ...
    async def settle_expired_calls(self, now: datetime | None = ...) -> int: ...
    async def rewind(
        self, session_id: str, *, checkpoint_id: str | None = ..., expected_version: int | None = ...
    ) -> SessionState: ...
    async def get_instructions(self, agent_type: str) -> str | None: ...
    async def set_instructions(self, agent_type: str, text: str | None) -> InstructionsRevision | None: ...
    async def list_instructions_revisions(self, agent_type: str) -> list[InstructionsRevision]: ...
    async def prune_sessions(
        self,
        policy: RetentionPolicy,
        *,
        page_size: int = ...,
        limit: int | None = ...,
        dry_run: bool = ...,
        on_progress: Callable[[PruneSummary], None] | None = ...,
        should_stop: Callable[[], bool] | None = ...,
    ) -> PruneSummary: ...
    async def archive_long_logs(
        self,
        *,
        longer_than: int,
        keep: int = ...,
        agent_type: str | None = ...,
        page_size: int = ...,
        dry_run: bool = ...,
        on_progress: Callable[[ArchiveSummary], None] | None = ...,
        should_stop: Callable[[], bool] | None = ...,
    ) -> ArchiveSummary: ...
    async def archive_events(
        self, session_id: str, *, keep: int = ..., dry_run: bool = ...
    ) -> ArchiveSummary: ...
    async def prune_audit_trail(
        self,
        older_than: timedelta,
        *,
        page_size: int = ...,
        limit: int | None = ...,
        dry_run: bool = ...,
        on_progress: Callable[[AuditSummary], None] | None = ...,
        should_stop: Callable[[], bool] | None = ...,
    ) -> AuditSummary: ...
    async def export_sessions(
        self,
        file: Writable,
        *,
        session_ids: Iterable[str] | None = ...,
        agent_type: str | None = ...,
        owner: Any = ...,
        user_id: str | None = ...,
        on_progress: Callable[[TransferSummary], None] | None = ...,
        should_stop: Callable[[], bool] | None = ...,
    ) -> TransferSummary: ...
    async def import_sessions(
        self,
        lines: Iterable[str],
        *,
        on_collision: str = ...,
        owner: Any = ...,
        check: bool = ...,
        on_progress: Callable[[TransferSummary], None] | None = ...,
    ) -> TransferSummary: ...
    async def examine_sessions(
        self,
        *,
        session_ids: Iterable[str] | None = ...,
        repair: bool = ...,
        deep: bool = ...,
        page_size: int = ...,
        on_finding: Callable[[Finding], None] | None = ...,
        on_progress: Callable[[int], None] | None = ...,
        should_stop: Callable[[], bool] | None = ...,
    ) -> list[Finding]: ...
    async def erase_user(
        self,
        *,
        owner: Any = ...,
        user_id: str | None = ...,
        include_forks: bool = ...,
        dry_run: bool = ...,
        on_progress: Callable[[ErasureSummary], None] | None = ...,
        should_stop: Callable[[], bool] | None = ...,
    ) -> ErasureSummary: ...
    async def create_session(
        self,
        session_id: str | None,
        *,
        agent_type: str,
        custom_state: Mapping[str, JSON] | None = ...,
        owner: Any = ...,
        user_id: str | None = ...,
        stream_id: str | None = ...,
        tags: Iterable[str] = ...,
        metadata: Mapping[str, JSON] | None = ...,
        parent_session_id: str | None = ...,
        root_session_id: str | None = ...,
        mode: str = ...,
        expires_at: datetime | None = ...,
        tracing_context: JSON = ...,
        workspace_ref: JSON = ...,
    ) -> SessionState: ...
    async def session_exists(self, session_id: str) -> bool: ...
    async def get_session_head(self, session_id: str) -> SessionHead: ...
    async def check_session_version(self, session_id: str, expected_version: int) -> None: ...
    async def get_metadata(self, session_id: str) -> tuple[dict[str, JSON], int]: ...
    async def delete_session(self, session_id: str, *, expected_version: int | None = ...) -> None: ...
    async def clone_session(
        self, source_id: str, new_id: str, *, checkpoint_id: str | None = ..., message_count: int | None = ...
    ) -> SessionState: ...
    async def query_sessions(self) -> SessionQuerySet: ...
    async def page_of_sessions(
        self, rows: SessionQuerySet, *, limit: int = ..., cursor: str | None = ...
    ) -> Page[SessionSummary]: ...
    async def list_sessions(
        self,
        *,
        status: str | None = ...,
        agent_type: str | None = ...,
        user_id: str | None = ...,
        owner: Any = ...,
        tag: str | None = ...,
        parent_session_id: str | None = ...,
        updated_after: datetime | None = ...,
        expires_before: datetime | None = ...,
        limit: int = ...,
        cursor: str | None = ...,
    ) -> Page[SessionSummary]: ...
    async def patch_metadata(
        self, session_id: str, patch: Mapping[str, JSON], *, expected_version: int | None = ...
    ) -> int: ...
    async def set_expiry(
        self, session_id: str, expires_at: datetime | None, *, expected_version: int | None = ...
    ) -> int: ...
    async def rotate_encryption(
        self,
        *,
        after: str = ...,
        page_size: int = ...,
        dry_run: bool = ...,
        on_progress: Callable[[RotationSummary], None] | None = ...,
        should_stop: Callable[[], bool] | None = ...,
    ) -> RotationSummary: ...

class AsyncFencedStore(AsyncSessionStore):
    def __await__(self) -> Generator[None, None, AsyncFencedStore]: ...
