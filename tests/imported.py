"""What the processes of `tests.parallel` begin with: everything imported, nothing connected."""

from importlib import import_module

import django

django.setup()
for name in ("helix_sessions.store", "helix_sessions.runtime", "rest_framework.test"):
    import_module(name)
