"""Tests of the OpenAI Agents SDK that are not run with our session, and why: by file and name."""

_INTERNALS = "looks into the connections, tables or locks of their session"
_CORRUPT = "damages a row of theirs; ours refuses what is not JSON when it is written"
_OTHER_ERROR = "wants the error of their driver for what is not JSON; ours is InvalidDocument"


def _each(reason: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, reason)


EXCLUDED: dict[str, dict[str, str]] = {
    "test_session.py": {
        **_each(
            _INTERNALS,
            "test_sqlite_session_close_closes_worker_thread_connections",
            "test_sqlite_session_file_lock_is_shared_across_instances",
            "test_sqlite_session_failed_clear_session_rolls_back",
            "test_sqlite_session_failed_pop_item_releases_write_lock",
            "test_sqlite_session_rollback_failure_evicts_connection",
            "test_sqlite_session_close_retries_quarantined_connection",
            "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome",
        ),
        **_each(
            _CORRUPT,
            "test_sqlite_session_pop_item_skips_corrupt_most_recent",
            "test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows",
            "test_sqlite_session_get_items_limit_skips_corrupt_newest_rows",
            "test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows",
        ),
        **_each(_OTHER_ERROR, "test_sqlite_session_failed_add_items_releases_write_lock"),
    },
    "test_async_sqlite_session.py": {
        **_each(
            _INTERNALS,
            "test_async_sqlite_session_get_items_same_timestamp_consistent_order",
            "test_async_sqlite_session_pop_item_same_timestamp_returns_latest",
            "test_cancelled_close_finishes_cleanup_and_propagates_cancellation",
            "test_post_commit_cancellation_propagates_after_known_mutation_outcome",
            "test_failed_clear_session_rolls_back",
            "test_failed_pop_item_releases_write_lock",
            "test_failed_initialization_closes_candidate_connection",
            "test_cancelled_add_items_rolls_back_write_transaction",
            "test_operation_failure_then_cancellation_during_rollback",
            "test_rollback_failure_closes_and_evicts_connection",
            "test_close_retries_connection_quarantined_after_rollback_failure",
            "test_close_retries_quarantined_failed_initialization_candidate",
            "test_cancelled_initialization_finishes_candidate_close",
            "test_initialization_failure_then_cancellation_during_candidate_close",
            "test_cancelled_connect_closes_eventually_acquired_connection",
        ),
        **_each(
            _CORRUPT,
            "test_async_sqlite_session_pop_item_skips_corrupt_most_recent",
            "test_async_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows",
            "test_async_sqlite_session_get_items_limit_skips_corrupt_newest_rows",
        ),
        **_each(_OTHER_ERROR, "test_failed_add_items_rolls_back_and_reuses_connection"),
    },
    "test_sqlalchemy_session.py": {
        **_each(
            _INTERNALS,
            "test_sqlalchemy_session_defaults_to_escaped_non_ascii_storage",
            "test_sqlalchemy_session_can_store_non_ascii_without_escaping",
            "test_sqlite_fallback_reserves_writer_before_tail_claim",
            "test_pop_item_supports_unknown_delete_rowcount",
            "test_pop_item_retries_returning_claim_lost_to_concurrent_delete",
            "test_mutation_cancellation_waits_for_transaction_exit",
            "test_add_items_waits_for_transient_sqlite_write_lock",
            "test_add_items_concurrent_first_access_across_from_url_sessions",
            "test_add_items_concurrent_first_access_across_from_url_sessions_cross_loop",
            "test_add_items_concurrent_first_access_with_shared_session_cross_loop",
            "test_add_items_cancelled_waiter_does_not_strand_table_init_lock",
            "test_create_tables_false_does_not_allocate_shared_init_lock",
            "test_get_items_same_timestamp_consistent_order",
            "test_pop_item_same_timestamp_returns_latest",
            "test_get_items_orders_by_id_for_ties",
            "test_engine_property_from_url",
            "test_engine_property_from_external_engine",
            "test_engine_property_is_read_only",
            "test_sqlite_configuration_registry_releases_collected_engines",
            "test_sqlite_configuration_registry_does_not_grow_unbounded",
        ),
        **_each(
            _CORRUPT,
            "test_pop_item_skips_corrupt_most_recent",
            "test_get_items_limit_skips_corrupt_newest_rows",
            "test_pop_item_returns_none_after_dropping_only_corrupt_rows",
        ),
    },
}
