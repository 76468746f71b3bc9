"""What the model sees, and compactions."""

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api import examples
from helix_sessions.api.idempotency import idempotent_without_a_lock
from helix_sessions.api.outputs import Compactions, MadeCompaction
from helix_sessions.api.responses import json_response
from helix_sessions.api.schema import operation
from helix_sessions.api.serializers.messages import CompactionInput
from helix_sessions.api.views.base import View, risen
from helix_sessions.runtime.compaction import compact_by_hand
from helix_sessions.types import ModelContext


class ContextView(View):
    @operation("get_context", tag="context", response=ModelContext, example=examples.CONTEXT)
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """Read exactly what the model sees."""
        self.query()
        return self.tagged(session_id, lambda _: self.store.get_context(session_id))


class CompactionsView(View):
    @operation(
        "list_compactions",
        tag="context",
        response=Compactions,
        example={"items": [examples.COMPACTION], "next_cursor": None},
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """List the compactions of the transcript, oldest first; the model sees the last."""
        self.query()
        return self.tagged(
            session_id,
            lambda _: Compactions(items=self.store.list_compactions(session_id), next_cursor=None),
        )

    @operation(
        "compact",
        tag="context",
        request=CompactionInput,
        sent={"reason": "manual"},
        response=MadeCompaction,
        status=201,
        also={200: MadeCompaction},
        example={"compaction": examples.COMPACTION},
        etag=False,
        if_match=True,
    )
    @idempotent_without_a_lock
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Summarize the older messages for the model; null when there was nothing to do."""
        given = self.input(CompactionInput)
        expected = self.expected_version(session_id)
        compaction = compact_by_hand(self.store, session_id, **given, expected_version=expected)
        status = 200 if compaction is None else 201
        return json_response(
            MadeCompaction(compaction=compaction),
            status=status,
            version=risen(expected, compaction is not None),
        )
