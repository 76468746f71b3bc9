"""Tests that are not run with our saver, and why: by suite, file and name."""

_INTERNALS = "looks into the fields of their saver"
_PENDING_SENDS = (
    "is about rows that savers wrote before LangGraph 0.5, which ours has none of; what it is given in the "
    "form of that time, LangGraph itself converts"
)

_PRUNE = "test_prune.py::test_keep_latest"
_DELTA = "theirs refuses to prune a thread with delta channels; ours keeps what they are rebuilt from"
_TASK_PATHS = (
    "test_setup_migrates_legacy_writes_table_repeatably",
    "test_put_writes_persists_task_path",
    "test_async_setup_migrates_legacy_writes_table_repeatably",
    "test_read_only_legacy_database_still_reads_delta_history",
    "test_async_read_only_legacy_database_still_reads_delta_history",
)

EXCLUDED: dict[str, dict[str, str]] = {
    "langgraph": {
        "test_channels.py::test_delta_channel_snapshot_version_based": _INTERNALS,
        "test_retry.py::test_error_handler_resumes_after_crash_multiple_nodes": (
            "races two failures against the time that a write takes; only a saver in memory is fast enough"
        ),
    },
    "checkpoint-sqlite": {
        **{f"test_writes_task_path_migration.py::{name}": _INTERNALS for name in _TASK_PATHS},
        "test_delta_parent_walk.py::test_walk_step_looks_up_the_parent_by_primary_key": _INTERNALS,
        "test_sqlite.py::test_informative_async_errors": "their sync saver has no async calls; ours has",
        "test_sqlite.py::test_search_where": _INTERNALS,
        "test_sqlite.py::test_metadata_predicate": _INTERNALS,
        "test_sqlite.py::test_metadata_predicate_sql_injection_prevention": _INTERNALS,
        "test_sqlite.py::test_checkpoint_search_sql_injection_prevention": (
            "wants an error for keys that would break their SQL; ours is not made of keys, and finds nothing"
        ),
    },
    "checkpoint-postgres": {
        **dict.fromkeys(
            (
                "test_delta_pagination.py::test_async_walk_reads_nothing_newer_than_the_target",
                "test_delta_pagination.py::test_sync_walk_reads_nothing_newer_than_the_target",
                "test_prune.py::test_keep_latest_keeps_a_checkpoint_saved_while_it_runs",
                "test_prune.py::test_keep_latest_keeps_a_checkpoint_saved_meanwhile_whatever_its_id",
                f"{_PRUNE}_keeps_the_history_of_a_delta_checkpoint_saved_after_the_thread_check",
            ),
            "waits for a statement of theirs",
        ),
        f"{_PRUNE}_refuses_a_batch_with_a_delta_channel_thread": _DELTA,
        f"{_PRUNE}_refuses_a_thread_that_turns_delta_after_the_batch_check": _DELTA,
        f"{_PRUNE}_keeps_the_parent_holding_a_pre_v4_heads_sends": _PENDING_SENDS,
        "test_prune.py::test_async_saver_prune_runs_from_another_thread_only": (
            "wants that an async saver cannot be called from its event loop; ours is one saver for both"
        ),
        "test_sync.py::test_nonnull_migrations": _INTERNALS,
        "test_sync.py::test_get_checkpoint_no_channel_values": _INTERNALS,
        "test_async.py::test_get_checkpoint_no_channel_values": _INTERNALS,
        "test_sync.py::test_pending_sends_migration": _PENDING_SENDS,
        "test_async.py::test_pending_sends_migration": _PENDING_SENDS,
        "test_delta_plain_value_seed.py::test_inline_primitive_seed_is_found": (
            "wants that a stored None is not found, which their form cannot tell from no value; ours can"
        ),
    },
}
