"""What a `SessionRuntime` tells whoever wants to know. The sender is the class `SessionRuntime`.

Receivers are told what happened and cannot change it: one that raises is logged, and disturbs nobody.
"""

from django.dispatch import Signal

session_loaded = Signal()
"""A session was read: `session_id`, `version`, `status`."""

session_load_failed = Signal()
"""A session could not be read: `session_id`, `error`, `error_type`."""

session_action_executed = Signal()
"""An action returned, and nothing of it is saved yet: `session_id`, `action`, `before_version`,
`after_version`, `before_status`, `after_status`."""

session_saved = Signal()
"""A session is saved, and the transaction that did it has committed: `session_id`, `version`, `status`."""

session_save_failed = Signal()
"""A session could not be saved, and is as it was: `session_id`, `error`, `error_type`."""
