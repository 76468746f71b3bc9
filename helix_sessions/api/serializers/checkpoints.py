"""Checkpoints, and the commits that make them."""

from typing import Any

from rest_framework import serializers

from helix_sessions.api.serializers.fields import (
    MAX_CHECKPOINT_ID,
    AnyObject,
    IdField,
    Input,
    ObjectField,
    ObjectsField,
)
from helix_sessions.api.serializers.pages import PageQuery
from helix_sessions.api.serializers.states import SessionStateSerializer, StateInput
from helix_sessions.types import CHECKPOINT_SOURCES, SESSION_STATUSES


class CheckpointMetaInput(Input):
    """What a caller may say of a checkpoint."""

    checkpoint_id = IdField(
        required=False,
        allow_null=True,
        max_length=MAX_CHECKPOINT_ID,
        help_text="The same id and content again returns the first result.",
    )
    step_id = IdField(required=False, allow_null=True)
    run_id = IdField(required=False, allow_null=True)
    metadata = ObjectField(required=False)


class CommitInput(Input):
    """The step commit."""

    state = StateInput()
    append_messages = ObjectsField(required=False)
    checkpoint_meta = CheckpointMetaInput(required=False, allow_null=True)


class CheckpointsQuery(PageQuery):
    offset = serializers.IntegerField(required=False, min_value=0)


class CommitResultSerializer(serializers.Serializer[Any]):
    version = serializers.IntegerField()
    checkpoint_id = serializers.CharField(allow_null=True)
    message_count = serializers.IntegerField()
    head_seq = serializers.IntegerField()
    replayed = serializers.BooleanField()


class CheckpointSerializer(serializers.Serializer[Any]):
    checkpoint_id = serializers.CharField()
    session_id = serializers.CharField()
    step_count = serializers.IntegerField()
    status = serializers.ChoiceField(SESSION_STATUSES)
    source = serializers.ChoiceField(CHECKPOINT_SOURCES)  # type: ignore[assignment]
    state = SessionStateSerializer()
    message_count = serializers.IntegerField()
    run_id = serializers.CharField(allow_null=True)
    step_id = serializers.CharField(allow_null=True)
    metadata = AnyObject()
    created_at = serializers.DateTimeField()


class LatestCheckpointSerializer(serializers.Serializer[Any]):
    checkpoint = CheckpointSerializer(allow_null=True)


class CheckpointPageSerializer(serializers.Serializer[Any]):
    items = CheckpointSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)
