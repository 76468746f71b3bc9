"""Waking, with everything encrypted: the log and the transcript are read to be repaired."""

from tests.contract.test_wake import *  # noqa: F403
