"""Rewinding, with everything encrypted: what was hidden is sealed again for its new place."""

from tests.contract.test_rewind import *  # noqa: F403
