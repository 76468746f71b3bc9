"""Runs."""

from helix_sessions.api.serializers.fields import (
    ChoiceText,
    DocumentField,
    IdField,
    Input,
    ObjectField,
    TextField,
    WholeField,
)
from helix_sessions.types import RUN_STATUSES


class RunInput(Input):
    run_id = IdField(required=False, allow_null=True)
    metadata = ObjectField(required=False)


class RunUpdateInput(Input):
    status = ChoiceText(RUN_STATUSES)
    step_count = WholeField(required=False, allow_null=True, min_value=0)
    output = DocumentField(required=False)
    error = TextField(required=False, allow_null=True)
    usage = DocumentField(required=False)
