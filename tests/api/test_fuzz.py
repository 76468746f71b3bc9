"""Whatever is sent to the live server: no 5xx, and no answer outside the schema."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import checks

from helix_sessions.store import SessionStore
from project.tokens import create_token
from tests.api.filled import fill
from tests.api.golden import GOLDEN, parsed
from tests.lengths import at_length
from tests.rows import each

SCHEMA = schemathesis.openapi.from_dict(parsed(GOLDEN.read_text(encoding="utf-8")))
OPERATIONS: dict[str, Any] = {}
for _found in SCHEMA.get_all_operations():
    _operation: Any = _found.ok()  # type: ignore[union-attr]
    if "text/event-stream" not in str(_operation.definition.raw["responses"]):  # a stream lasts
        OPERATIONS[_operation.label] = _operation
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
KNOWN = {
    "session_id": "fuzzed",
    "run_id": "r",
    "input_id": "i",
    "checkpoint_id": "c",
    "sub_session_id": "sub",
    "child_id": "sub",
    "token": "no:such:token",
    "rule_id": "no-such-rule",
    "schedule_id": "no-such-schedule",
    "webhook_id": "no-such-webhook",
    "limit_id": "no-such-limit",
    "position": 0,
    "message_id": "no-such-message",
    "step_id": "step",
    "tool_call_id": "call",
    "ticket": "no:such:ticket",
    "sha256": "0" * 64,
    "chat_id": "chat",
}


def fuzz(label, server, user, examples):
    store = SessionStore()
    headers = {"Authorization": f"Bearer {create_token(user, 'fuzz')}"}

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=OPERATIONS[label].as_strategy(), known=st.booleans())
    def send(case, known):
        if known:
            if not store.session_exists("fuzzed"):
                store.create_session("fuzzed", agent_type="a", owner=user)
                fill(store, "fuzzed")
            for name in case.path_parameters or {}:
                case.path_parameters[name] = KNOWN[name]
        response = case.call(base_url=server.url, headers=headers, timeout=60)
        case.validate_response(response, checks=CHECKS)

    send()


@pytest.mark.django_db(transaction=True)
class TestLiveServer:
    @each("label", OPERATIONS)
    def test_in_short(self, label, live_server, user):
        fuzz(label, live_server, user, examples=3)

    @pytest.mark.slow
    @pytest.mark.timeout(3600)
    @each("label", OPERATIONS)
    def test_at_length(self, label, live_server, user):
        fuzz(label, live_server, user, examples=at_length(20))
