"""Staged writes."""

from rest_framework import serializers

from helix_sessions.api.serializers.checkpoints import CheckpointMetaInput
from helix_sessions.api.serializers.fields import IdField, Input, ObjectsField
from helix_sessions.api.serializers.pages import PageQuery

MAX_AGE = 10 * 365 * 24 * 3600


class StagedInput(Input):
    writes = ObjectsField(help_text="StepWrites, or RFC 6902 operations.")


class PromoteInput(Input):
    step_id = IdField()
    checkpoint_meta = CheckpointMetaInput(required=False, allow_null=True)


class DiscardInput(Input):
    step_id = IdField(required=False, allow_null=True)


class CleanupInput(Input):
    older_than_seconds = serializers.FloatField(min_value=0, max_value=MAX_AGE)


class StagingQuery(PageQuery):
    step_id = serializers.CharField(required=False, trim_whitespace=False)
