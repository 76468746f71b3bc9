"""LangGraph's own conformance suite, whole."""

from collections.abc import AsyncGenerator

import pytest
from asgiref.sync import async_to_sync
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability, DetectedCapabilities

from helix_sessions.integrations.langgraph import DjangoSaver

pytestmark = pytest.mark.django_db(transaction=True)


def test_every_capability_is_detected() -> None:
    assert DetectedCapabilities.from_instance(DjangoSaver()).detected == set(Capability)


def test_the_conformance_suite_passes_whole() -> None:
    @checkpointer_test(name="DjangoSaver")
    async def ours() -> AsyncGenerator[BaseCheckpointSaver[int], None]:
        yield DjangoSaver()

    report = async_to_sync(validate)(ours)

    assert {name: result.failures for name, result in report.results.items() if result.failures} == {}
    assert all(result.detected and result.passed for result in report.results.values())
    assert sum(result.tests_passed for result in report.results.values()) == 81
    assert sum(result.tests_skipped for result in report.results.values()) == 0
