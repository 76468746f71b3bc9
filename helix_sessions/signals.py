"""Signals: of a `SessionRuntime`, and of what webhooks are told as well.

Receivers learn what happened and cannot change it: an error in a receiver is logged and stops nothing. The
sender of the first group is the class `SessionRuntime`, that of the second the model `Session`.
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

run_finished = Signal()
"""A run has ended, by its driver or from outside, and the transaction has committed: `session_id`, `run_id`,
`status`."""

call_waiting = Signal()
"""A tool call waits for a client or for an approval, and the transaction has committed: `session_id`,
`tool_call_id`, `tool_name`, `kind`."""

session_failed = Signal()
"""A session has become `failed`, and the transaction has committed: `session_id`, `error`."""

session_expired = Signal()
"""A session has expired, and the transaction has committed: `session_id`."""

spend_warning = Signal()
"""Spending has reached the share of a limit that it warns at, and the transaction has committed: `scope`,
`key`, `window`."""

schedule_fired = Signal()
"""A schedule has fired, and the transaction has committed: `schedule_id`, `firing_at`, `state` (`fired`,
`queued`, `skipped` or `failed`), `session_id`, `error`. The sender is the model `Schedule`. One that was
queued sends it again as `fired` when it begins."""
