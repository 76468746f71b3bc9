"""Checkpoints, and the commits that make them."""

from rest_framework import serializers

from helix_sessions.api.serializers.fields import (
    CheckpointIdField,
    IdField,
    Input,
    ObjectField,
    ObjectsField,
)
from helix_sessions.api.serializers.pages import PageQuery
from helix_sessions.api.serializers.states import StateInput


class CheckpointMetaInput(Input):
    """The options of a checkpoint."""

    checkpoint_id = CheckpointIdField(help_text="The same id and content again returns the first result.")
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
