"""Tests of Google's ADK that are not run with our services, and why: by file and name."""

_INTERNALS = "looks into the tables, the connections or the fields of their service"
_URI = "compares the address of a version, which names their service"
_FLAT = "is about services that keep what users share beside their sessions, under the name 'user'"
_SYNC = "calls what only their service in memory has: sync twins"
_OTHERS = "is about another of ADK's services, or about how theirs is imported"
_TIES = "wants memories that fit as well in the order they were added; ours have the latest first"
_ORDER = "wants events of one time in the order of their ids; ours come as they were appended, as in memory"


def _each(reason: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, reason)


EXCLUDED: dict[str, dict[str, str]] = {
    "test_session_service.py": {
        **_each(
            _INTERNALS,
            "test_sqlite_session_service_accepts_sqlite_urls",
            "test_sqlite_session_service_preserves_uri_query_parameters",
            "test_sqlite_session_service_accepts_absolute_sqlite_urls",
            "test_database_session_service_get_session_uses_read_only_factory",
            "test_database_session_service_list_sessions_uses_read_only_factory",
            "test_database_session_service_list_sessions_orders_by_update_time_then_id",
            "test_append_event_raises_if_app_state_row_missing",
            "test_append_event_raises_if_user_state_row_missing",
            "test_append_event_when_session_is_same_ref_as_storage_session",
            "test_create_session_calls_rollback_on_commit_failure",
            "test_append_event_calls_rollback_on_commit_failure",
            "test_append_event_reads_storage_revision_before_commit",
            "test_create_session_reads_storage_revision_before_commit",
            "test_delete_session_calls_rollback_on_commit_failure",
            "test_service_recovers_after_multiple_failures",
            "test_concurrent_prepare_tables_no_race_condition",
            "test_prepare_tables_serializes_schema_detection_and_creation",
            "test_prepare_tables_idempotent_after_creation",
            "test_get_or_create_state_returns_existing_row",
            "test_get_or_create_state_creates_new_row",
            "test_get_or_create_state_handles_race_condition",
            "test_append_event_locks_only_scopes_with_deltas",
            "test_database_session_service_uses_naive_datetime_for_dialect",
            "test_database_session_service_keeps_timezone_for_spanner",
            "test_public_prepare_tables_eager_initialization",
            "test_database_session_service_requires_one_argument",
            "test_database_session_service_sqlite_file_timestamp_read_after_reopen",
            "test_database_session_service_malformed_url_reports_usable_error",
            "test_database_session_service_engine_error_hides_password",
            "test_database_session_service_sync_driver_url_names_async_driver",
            "test_get_user_state_copies_to_session_state_depth",
        ),
        **_each(
            _SYNC,
            "test_delete_session_sync_removes_only_the_targeted_users_session",
            "test_delete_session_sync_unknown_session_is_a_noop",
            "test_list_sessions_sync_strips_events_and_merges_scoped_state",
            "test_list_sessions_sync_unknown_app_or_user_returns_empty_response",
        ),
        **_each(
            _OTHERS,
            "test_vertex_ai_session_service_raises_not_implemented_for_get_user_state",
            "test_database_session_service_visible_in_module_namespace",
        ),
        **_each(_ORDER, "test_get_session_orders_tied_timestamps_by_id"),
    },
    "test_artifact_service.py": {
        **_each(
            _URI,
            "test_list_artifact_versions_and_get_artifact_version",
            "test_list_artifact_versions_with_user_prefix",
        ),
        **_each(
            _INTERNALS,
            "test_artifact_reference_rejects_cross_session_on_load",
        ),
        **_each(_FLAT, "test_save_artifact_rejects_reserved_user_as_session_id"),
    },
    "test_in_memory_memory_service.py": {
        **_each(
            _INTERNALS,
            "test_add_session_to_memory",
            "test_add_events_to_memory_with_explicit_events",
            "test_add_events_to_memory_without_session_id_uses_default_bucket",
            "test_add_events_to_memory_alias_is_supported",
            "test_add_events_to_memory_appends_without_replacing",
            "test_add_events_to_memory_deduplicates_event_ids",
            "test_add_session_with_no_events_to_memory",
        ),
        **_each(_TIES, "test_search_memory_returns_at_most_ten_memories"),
    },
}
