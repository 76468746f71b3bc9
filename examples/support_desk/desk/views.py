from django.contrib.admin.views.decorators import staff_member_required
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from helix_sessions.store import SessionStore

store = SessionStore()


@staff_member_required
def tickets(request):
    if request.method == "POST":
        ticket = store.create_session(None, agent_type="support", user_id=request.POST["customer"])
        store.admit_input(ticket.session_id, request.POST["text"])
        return redirect("ticket", ticket.session_id)
    return render(request, "tickets.html", {"tickets": store.list_sessions(limit=50).items})


@staff_member_required
def ticket(request, session_id):
    calls = store.load_state(session_id).pending_client_tool_calls or {}
    waiting = [call for call in calls.values() if not call["submitted_at"]]
    messages = store.get_messages(session_id).messages
    return render(request, "ticket.html", {"id": session_id, "messages": messages, "waiting": waiting})


@staff_member_required
@require_POST
def decide(request, session_id):
    """Any worker goes on with the answer, now or after a restart."""
    store.submit_tool_result(
        session_id,
        request.POST["call"],
        approved=request.POST["decision"] == "approve",
        by={"kind": "operator", "id": str(request.user.pk)},
    )
    return redirect("ticket", session_id)
