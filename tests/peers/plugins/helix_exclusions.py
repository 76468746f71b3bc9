"""Tests that are not run with our saver, and why: by suite, file and name."""

_INTERNALS = "looks into the fields of their saver"
_PENDING_SENDS = (
    "is about rows that savers wrote before LangGraph 0.5, which ours has none of; what it is given in the "
    "form of that time, LangGraph itself converts"
)

EXCLUDED: dict[str, dict[str, str]] = {
    "langgraph": {
        "test_channels.py::test_delta_channel_snapshot_version_based": _INTERNALS,
        "test_retry.py::test_error_handler_resumes_after_crash_multiple_nodes": (
            "races two failures against the time that a write takes; only a saver in memory is fast enough"
        ),
    },
    "checkpoint-sqlite": {
        "test_sqlite.py::test_informative_async_errors": "their sync saver has no async calls; ours has",
        "test_sqlite.py::test_search_where": _INTERNALS,
        "test_sqlite.py::test_metadata_predicate": _INTERNALS,
        "test_sqlite.py::test_metadata_predicate_sql_injection_prevention": _INTERNALS,
        "test_sqlite.py::test_checkpoint_search_sql_injection_prevention": (
            "wants an error for keys that would break their SQL; ours is not made of keys, and finds nothing"
        ),
    },
    "checkpoint-postgres": {
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
