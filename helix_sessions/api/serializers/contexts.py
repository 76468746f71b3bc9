"""What the model sees, and compactions."""

from helix_sessions.api.serializers.fields import IdField, Input


class CompactionInput(Input):
    reason = IdField(required=False, help_text="Why; `manual` if nothing is said.")
