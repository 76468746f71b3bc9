"""`python -m tests.admin.gallery plain|unfold`: the console with something of everything, to look at.

Serves a database of its own, and prints the address and the cookie of an operator who is logged in.
`tests/admin/test_accessible.py` visits every page of it.
"""

import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4


def main(theme: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DATABASE_URL"] = f"sqlite:///{Path(folder) / 'gallery.sqlite3'}"
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
        import django
        from django.conf import settings

        if theme == "unfold":
            settings.INSTALLED_APPS = ["unfold", *settings.INSTALLED_APPS]
        settings.ALLOWED_HOSTS = ["*"]
        settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, "INBOX_LIMIT": 5, "TRANSCRIPT_SEARCH": True}
        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        cookie = _fill()
        _serve(cookie)


def _serve(cookie: str) -> None:
    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.wsgi import get_wsgi_application

    class Quiet(WSGIRequestHandler):
        def log_message(self, *args: Any) -> None:
            """Nothing."""

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True

    class Static(StaticFilesHandler):
        def serve(self, request: Any) -> Any:
            from django.contrib.staticfiles.views import serve

            return serve(request, self.file_path(request.path), insecure=True)

    server = make_server("127.0.0.1", 0, Static(get_wsgi_application()), Server, Quiet)
    print(f"http://127.0.0.1:{server.server_port}", cookie, flush=True)
    server.serve_forever()


def _fill() -> str:
    from django.conf import settings
    from django.contrib.auth import get_user_model
    from django.test import Client

    from helix_sessions.store import SessionStore
    from tests.admin.places import LIST, make_busy_session, make_stuck

    store = SessionStore()
    make_busy_session(store, "parcel-desk-17")
    store.give_feedback("parcel-desk-17", 1, "down", comment="Wrong place", by="visitor")
    make_stuck("parcel-desk-17")
    _runs(store)
    _failures(store)
    _waits(store)
    _others(store)
    user = get_user_model().objects.create_superuser("operator", password="operator")
    client = Client()
    client.force_login(user)
    client.post(f"{LIST}views/save/", {"name": "Failed", "query": "status=failed"})
    chosen = {"filter": "status=failed&agent=invoices", "reason": "The host is back."}
    client.post(f"{LIST}action/retry/", chosen)
    return str(client.cookies[settings.SESSION_COOKIE_NAME].value)


def _runs(store: Any) -> None:
    from helix_sessions.store.driving.workers import beat
    from tests.admin.test_session_page import make_run

    make_run(store)
    for number in range(8):
        key = f"idle-{number:02}"
        store.create_session(key, agent_type="night-watch", user_id=f"customer-{number}", tags=["vip"])
        run = store.create_run(key)
        store.append_messages(key, [{"role": "user", "content": "Is anybody there?"}])
        usage = {"input_tokens": 900 + number, "output_tokens": 40, "cost": 0.02, "model": "small"}
        store.update_run_status(key, run.run_id, "completed", usage=usage)
    started = _ago(hours=5)
    about: Any = {"host": "box-1", "pid": 71, "concurrency": 4, "agents": ["*"], "started_at": started}
    beat(store.using, "box-1:71:a", **about, driven=12)
    for number in range(2):
        store.create_session(f"driven-{number}", agent_type="support")
        store.create_run(f"driven-{number}")
        store.acquire_lease(f"driven-{number}", "box-1:71:a", 3600)


def _failures(store: Any) -> None:
    for number in range(6):
        key = f"failed-{number}"
        store.create_session(key, agent_type="invoices" if number % 2 else "support")
        error = {"code": "timeout", "message": f"host {number} did not answer", "type": "Timeout"}
        store.compare_and_set_status(key, ["active"], "failed", error=error)
    store.create_session("gone", agent_type="support", expires_at=_ago(hours=2))
    store.create_session("full", agent_type="support")
    for number in range(5):
        store.admit_input("full", {"content": "Hello?"}, input_id=f"full-{number}")


def _waits(store: Any) -> None:
    from django.utils import timezone

    for number in range(3):
        key = f"refund-desk-{number}"
        store.begin_turn(key, message="Pay the money back.", agent_type="refunds", run_id="r")
        asked: list[dict[str, Any]] = [
            {
                "tool_call_id": "call_pay",
                "tool_name": "pay_back",
                "arguments": {"amount": 20 + number, "currency": "EUR"},
                "kind": "approval",
                "deadline": timezone.now() + timedelta(hours=3 * number - 1),
            },
            {"tool_call_id": "call_read", "tool_name": "read_clipboard", "arguments": {}},
        ]
        state = store.load_state(key)
        store.suspend(key, "client_tool", state=state, run_id="r", pending_calls=asked[: number + 1])


def _others(store: Any) -> None:
    from django.utils import timezone

    from helix_sessions.memory import MemoryStore
    from helix_sessions.models import Alert, AuditEntry

    store.set_instructions("support", "Be kind.")
    store.set_instructions("support", "Be kind.\nBe brief.")
    store.set_tool_rule("refund", "ask")
    store.create_webhook("https://hooks.example.com/ops", events=["alert.firing"])
    store.set_spend_limit(scope="all", window="month", usd=12, tokens=10_000)
    store.create_schedule("Digest", cron="0 8 * * *", agent_type="support", prompt="Sum up.")
    MemoryStore().put(("owner", "7"), "tea", {"text": "Likes green tea"})
    Alert.objects.create(name="Failures", query="status=failed&within=hour", threshold=3)
    told = {"actor": "7", "session_id": "parcel-desk-17", "action": "POST api/sessions", "status": 201}
    AuditEntry.objects.create(entry_id=uuid4(), at=timezone.now(), **told)


def _ago(**span: float) -> Any:
    from django.utils import timezone

    return timezone.now() - timedelta(**span)


if __name__ == "__main__":
    main(sys.argv[1])
