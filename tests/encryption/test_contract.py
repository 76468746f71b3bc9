"""The contract's own tests, with everything they store encrypted.

The whole suite runs so with `HELIX_TEST_ENCRYPTION=1 python -m tests.run`; this is the part of every run.
(Those few tests that compare stored bytes are about plain storage.)
"""

from importlib import import_module

import pytest

pytestmark = pytest.mark.django_db

MODULES = (
    "contract.test_checkpoints",
    "contract.test_commits",
    "contract.test_messages",
    "contract.test_sessions",
    "contract.test_staging",
    "contract.test_states",
    "contract.test_submissions",
)

for _name in MODULES:
    for _test, _what in vars(import_module(f"tests.{_name}")).items():
        if _test.startswith(("test_", "Test")):
            globals()[f"{_test}__{_name.rpartition('.')[2]}"] = _what
        elif hasattr(_what, "_fixture_function") or hasattr(_what, "_pytestfixturefunction"):
            globals()[_test] = _what
