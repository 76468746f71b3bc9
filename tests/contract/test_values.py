"""Section 0, and the names of section 2: what callers in other languages and pickles rely on."""

import dataclasses
import inspect
import pickle
from typing import Any

from helix_sessions import exceptions, types
from helix_sessions.store import SessionStore
from tests.rows import each

FIELDS = {
    "Page": "items next_cursor",
    "SessionSummary": "session_id agent_type status version step_count message_count user_id owner_id tags "
    "parent_session_id expires_at created_at updated_at",
    "SessionState": "session_id agent_type stream_id custom_state status step_count output error "
    "failure_reason interrupt_context pending_client_tool_calls suspended_awaiting_children "
    "suspended_step_id suspension_context completed_client_tool_calls client_tool_call_ownership "
    "tracing_context location expires_at parent_session_id root_session_id forked_from mode version "
    "resume_count head_seq message_count checkpoint_id checkpointed_at checkpoint_source owner_id user_id "
    "tags metadata workspace_ref created_at updated_at runnable_at last_agent_activity_at",
    "Run": "run_id session_id turn status step_count start_sequence end_sequence output error usage metadata "
    "started_at ended_at",
    "Checkpoint": "checkpoint_id session_id step_count status source state message_count run_id step_id "
    "metadata created_at",
    "CheckpointMeta": "checkpoint_id step_id run_id metadata",
    "StagedChange": "step_id tool_call_id writes staged_at",
    "EventRecord": "session_id seq type data turn_id run_id created_at",
    "InterruptRequest": "reason requested_at",
    "SubSessionRef": "sub_session_id agent_type parent_tool_call_id status mode location result created_at "
    "updated_at",
    "ProjectedMessage": "role content tool_call_id seq created_at",
    "CasOk": "ok new_version",
    "CasMismatch": "ok current_status current_version",
    "CommitResult": "version checkpoint_id message_count head_seq replayed",
    "AppendResult": "first_position message_count version head_seq",
    "MessagePage": "messages total has_more",
}

ERRORS = {
    "SessionNotFound": "session_not_found",
    "SessionExists": "session_exists",
    "StaleState": "stale_state",
    "RunNotFound": "run_not_found",
    "RunEnded": "run_ended",
    "RunInProgress": "run_in_progress",
    "RunExists": "run_exists",
    "CheckpointNotFound": "checkpoint_not_found",
    "CommitConflict": "commit_conflict",
    "InvalidDocument": "invalid_document",
    "InvalidWrites": "invalid_writes",
    "InvalidCursor": "invalid_cursor",
    "InvalidInput": "invalid_input",
    "ModeLocked": "mode_locked",
    "SessionBusy": "session_busy",
    "StoreUnavailable": "store_unavailable",
    "SubSessionRefExists": "sub_session_ref_exists",
    "SubSessionRefNotFound": "sub_session_ref_not_found",
    "SessionConflict": "session_conflict",
    "TransientError": "transient_error",
}

SIGNATURES = {
    "create_session": "session_id",
    "session_exists": "id",
    "delete_session": "id",
    "clone_session": "source_id new_id",
    "list_sessions": "",
    "patch_metadata": "id patch",
    "load_state": "id",
    "save_state": "id state",
    "merge_custom_state": "id writes",
    "update_status": "id status",
    "compare_and_set_status": "id expected_statuses new_status",
    "increment_step_count": "id",
    "increment_resume_count": "id",
    "save_state_and_promote_staging": "id state append_messages checkpoint_meta",
    "append_messages": "id messages",
    "get_messages": "id",
    "get_message_count": "id",
    "truncate_messages": "id count",
    "create_run": "id",
    "update_run_status": "id run_id status",
    "get_current_run": "id",
    "get_run": "id run_id",
    "list_runs": "id",
    "create_checkpoint": "id meta",
    "get_latest_checkpoint": "id",
    "get_checkpoint": "id checkpoint_id",
    "list_checkpoints": "id",
    "stage_changes": "id step_id tool_call_id writes",
    "get_staged_changes": "id step_id",
    "has_staged_changes": "id step_id",
    "promote_staging": "id step_id meta",
    "discard_staging": "id step_id",
    "cleanup_orphaned_staging": "",
    "set_interrupt_flag": "id reason",
    "check_interrupt_flag": "id",
    "clear_interrupt_flag": "id",
    "add_sub_session_refs": "id refs",
    "update_sub_session_ref": "id sub_session_id",
    "get_sub_session_refs": "id",
    "attach": "id",
    "emit_event": "id type data",
    "get_events": "id from_seq to_seq",
    "detach": "id",
    "project_messages": "events",
}
"""The arguments that may be given by place; all others by name only."""


@each(("name", "fields"), FIELDS.items(), ids=FIELDS)
def test_a_value_has_exactly_these_fields_frozen_and_by_name_only(name: str, fields: str) -> None:
    value = getattr(types, name)
    assert [field.name for field in dataclasses.fields(value)] == fields.split()
    assert all(field.kw_only for field in dataclasses.fields(value))
    assert value.__dataclass_params__.frozen


def test_the_defaults_of_a_checkpoint_meta() -> None:
    assert types.CheckpointMeta() == types.CheckpointMeta(
        checkpoint_id=None, step_id=None, run_id=None, metadata={}
    )


def test_a_compare_and_set_is_true_when_it_took_place() -> None:
    assert bool(types.CasOk(new_version=2)) is True
    assert types.CasOk(new_version=2).ok is True
    assert bool(types.CasMismatch(current_status="active", current_version=1)) is False
    assert types.CasMismatch(current_status="active", current_version=1).ok is False


def test_unset_is_one_value_that_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(types.UNSET)) is types.UNSET
    assert repr(types.UNSET) == "UNSET"


@each(("name", "code"), ERRORS.items(), ids=ERRORS)
def test_an_error_has_a_stable_code(name: str, code: str) -> None:
    error = getattr(exceptions, name)
    assert issubclass(error, exceptions.HelixSessionsError)
    assert error.code == code


def test_codes_are_told_apart() -> None:
    errors: list[Any] = [exceptions.HelixSessionsError]
    for error in errors:
        errors.extend(error.__subclasses__())
    codes = [error.code for error in errors]
    assert len(codes) == len(set(codes))


def test_invalid_input_is_a_value_error() -> None:
    assert issubclass(exceptions.InvalidInput, ValueError)


@each("kind", [exceptions.StaleState, exceptions.SessionConflict])
def test_a_stale_state_survives_pickling(kind: type[exceptions.StaleState]) -> None:
    error = kind(expected_version=1, current_version=2, current_status="paused")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (again.expected_version, again.current_version, again.current_status) == (1, 2, "paused")
    assert str(again) == str(error)


@each(("name", "by_place"), SIGNATURES.items(), ids=SIGNATURES)
def test_only_the_arguments_shown_first_may_be_given_by_place(name: str, by_place: str) -> None:
    parameters = list(inspect.signature(getattr(SessionStore(), name)).parameters.values())
    placed = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    expected = by_place.split()
    if expected[:1] == ["id"]:
        placed[0] = "id"
    assert placed == expected
