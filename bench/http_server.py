"""`python -m bench.http_server SESSIONS THREADS`: make the database of the HTTP benchmark, print a token."""

import json
import sys

SESSION = "http-{}"
PAGE = "http-page"


def prepare(sessions: int, threads: int) -> str:
    """A backend's user with sessions, one of them with messages to read, and one for each writing thread."""
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Permission
    from django.core.management import call_command

    from bench import payload
    from helix_sessions.store import SessionStore
    from project.tokens import create_token

    call_command("migrate", verbosity=0)
    user = get_user_model().objects.create_user("bench")
    user.user_permissions.add(Permission.objects.get(codename="drive_session"))
    store = SessionStore(owned_by=user)
    for number in range(sessions):
        store.create_session(f"other-{number:06d}", agent_type="bench")
    for number in range(threads):
        store.create_session(SESSION.format(number), agent_type="bench")
    store.create_session(PAGE, agent_type="bench")
    store.append_messages(PAGE, payload.history(200))
    return create_token(user, "bench")


if __name__ == "__main__":
    import django

    django.setup()
    print(json.dumps({"token": prepare(int(sys.argv[1]), int(sys.argv[2]))}))
