"""Sessions: created, branched, listed, described."""

from typing import Any

from helix_sessions.api.serializers.fields import (
    CheckpointIdField,
    ChoiceText,
    DocumentField,
    IdField,
    Input,
    MomentField,
    ObjectField,
    TextField,
    TextsField,
    WholeField,
    shaped,
)
from helix_sessions.types import HIGHEST_PRIORITY, LOWEST_PRIORITY, MODES

OwnerField = shaped(DocumentField, {"type": ["integer", "string", "null"]})


class PriorityField(WholeField):
    """How urgent it is beside others."""

    def __init__(self, **options: Any) -> None:
        limits = {"min_value": LOWEST_PRIORITY, "max_value": HIGHEST_PRIORITY}
        super().__init__(**{"help_text": "Higher ones go first; above 0 for drivers.", **limits, **options})


class SessionInput(Input):
    """What a session is created with."""

    agent_type = IdField()
    custom_state = ObjectField(required=False)
    owner = OwnerField(
        required=False, help_text="The key of the user it is for; another user needs `manage_all_sessions`."
    )
    user_id = IdField(required=False, allow_null=True)
    stream_id = IdField(required=False, allow_null=True)
    tags = TextsField(required=False)
    metadata = ObjectField(required=False)
    parent_session_id = IdField(required=False, allow_null=True)
    root_session_id = IdField(required=False, allow_null=True)
    mode = ChoiceText(MODES, required=False)
    expires_at = MomentField(required=False, allow_null=True)
    tracing_context = DocumentField(required=False)
    workspace_ref = DocumentField(required=False)
    priority = PriorityField(required=False)


class NewSessionInput(SessionInput):
    """What a session is created with; without an id it gets one."""

    session_id = IdField(required=False, allow_null=True)


class DescriptionInput(Input):
    """What describes a session. What is left out stays."""

    title = TextField(required=False, allow_null=True, help_text="Kept as the key `title` of the metadata.")
    tags = TextsField(required=False)
    user_id = IdField(required=False, allow_null=True)
    metadata = ObjectField(required=False, help_text="Keys to set; a null removes its key.")


class CloneInput(Input):
    new_id = IdField(required=False, allow_null=True, help_text="The id of the branch; else it gets one.")
    checkpoint_id = CheckpointIdField(help_text="Branch off here, not now.")
    message_count = WholeField(required=False, allow_null=True, min_value=0)


class AttachInput(Input):
    agent_type = IdField(required=False)
