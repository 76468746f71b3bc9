"""Make a token for the API."""

from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from project.tokens import create_token


class Command(BaseCommand):
    """`manage.py create_api_token USERNAME`: prints the token, once."""

    help = "Make an API token for a user and print it. It is not stored and cannot be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--name", default="created on the command line", help="what it is for")
        parser.add_argument("--days", type=int, help="how long it is valid; for good without it")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the token and print nothing else."""
        user = get_user_model()._default_manager.filter(username=options["username"]).first()
        if user is None:
            raise CommandError(f"There is no user {options['username']!r}.")
        days = options["days"]
        expires_at = None if days is None else timezone.now() + timedelta(days=days)
        self.stdout.write(create_token(user, options["name"], expires_at))
