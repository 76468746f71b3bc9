"""Create the demo's admin login once."""

import os
import secrets
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand

USERNAME = "admin"


class Command(BaseCommand):
    """`manage.py ensure_admin`: safe to repeat; never changes a login that exists."""

    help = "Create the login 'admin' with HELIX_ADMIN_PASSWORD or a random password, unless it exists."

    def handle(self, *args: Any, **options: Any) -> None:
        """Create the login and say how to use it."""
        users = get_user_model()._default_manager
        if users.filter(username=USERNAME).exists():
            self.stdout.write(
                f"The login {USERNAME!r} exists. A new password: manage.py changepassword {USERNAME}"
            )
            return
        given = os.environ.get("HELIX_ADMIN_PASSWORD")
        password = given or secrets.token_urlsafe(12)
        get_user_model().objects.create_superuser(username=USERNAME, password=password)
        shown = "that of HELIX_ADMIN_PASSWORD" if given else f"{password} (not shown again)"
        self.stdout.write(self.style.SUCCESS(f"Created the login {USERNAME!r}, password: {shown}"))
