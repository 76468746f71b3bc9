"""The step commit."""

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api import examples
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.responses import json_response
from helix_sessions.api.schema import operation
from helix_sessions.api.serializers.checkpoints import CommitInput
from helix_sessions.api.views.base import View
from helix_sessions.api.views.states import state_from
from helix_sessions.types import CommitResult


class CommitView(View):
    @operation(
        "commit_step",
        tag="commit",
        request=CommitInput,
        sent=examples.COMMIT,
        response=CommitResult,
        example=examples.COMMITTED,
        if_match=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Commit a step: state, staged writes, messages and checkpoint, all or nothing.

        A caller that lost the response retries the request with the same `checkpoint_meta.checkpoint_id`, at
        any time and with any `If-Match`, and gets the first result with `replayed: true`.
        """
        given = self.input(CommitInput)
        result = self.store.save_state_and_promote_staging(
            session_id,
            state_from(session_id, given["state"]),
            given.get("append_messages", ()),
            given.get("checkpoint_meta"),
            expected_version=self.expected_version(session_id),
        )
        return json_response(result, version=result.version)
