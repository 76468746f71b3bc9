"""Checkpoints."""

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api import examples
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.outputs import LatestCheckpoint
from helix_sessions.api.responses import json_response
from helix_sessions.api.schema import Query, listing, operation
from helix_sessions.api.serializers.checkpoints import CheckpointMetaInput, CheckpointsQuery
from helix_sessions.api.views.base import View
from helix_sessions.types import Checkpoint, Page


class CheckpointsView(View):
    @listing(
        "list_checkpoints",
        tag="checkpoints",
        response=Page[Checkpoint],
        example=examples.CHECKPOINT,
        query=[Query("offset", "How many to skip.", int)],
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """List the checkpoints of a session, the last written first."""
        page = self.query(CheckpointsQuery)
        return self.tagged(session_id, lambda _: self.store.list_checkpoints(session_id, **page))

    @operation(
        "create_checkpoint",
        tag="checkpoints",
        request=CheckpointMetaInput,
        sent={"checkpoint_id": examples.CHECKPOINT_ID},
        response=Checkpoint,
        status=201,
        example=examples.CHECKPOINT,
        if_match=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Create a checkpoint of the session as it is."""
        meta = self.input(CheckpointMetaInput)
        expected = self.expected_version(session_id)
        checkpoint = self.store.create_checkpoint(session_id, meta, expected_version=expected)
        return json_response(self.visible(checkpoint), status=201, version=checkpoint.state.version)


class LatestCheckpointView(View):
    @operation(
        "get_latest_checkpoint",
        tag="checkpoints",
        response=LatestCheckpoint,
        example={"checkpoint": examples.CHECKPOINT},
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """The checkpoint written last, or null."""
        self.query()
        return self.tagged(
            session_id, lambda _: LatestCheckpoint(checkpoint=self.store.get_latest_checkpoint(session_id))
        )


class CheckpointView(View):
    @operation("get_checkpoint", tag="checkpoints", response=Checkpoint, example=examples.CHECKPOINT)
    def get(self, request: Request, session_id: str, checkpoint_id: str) -> HttpResponse:
        """Read a checkpoint, with its state."""
        self.query()
        return self.tagged(session_id, lambda _: self.store.get_checkpoint(session_id, checkpoint_id))
