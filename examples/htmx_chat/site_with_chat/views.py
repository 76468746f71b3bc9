from django.contrib.auth.decorators import login_required
from django.shortcuts import render
from django.views.decorators.http import require_POST

from helix_sessions.store import SessionStore


def conversation(request):
    """The user's conversation: one session, found by its id, made when it is first needed."""
    store = SessionStore(owned_by=request.user)
    session_id = f"guide-{request.user.pk}"
    store.ensure_session(session_id, agent_type="guide")
    return store, session_id


def shown(request, template):
    store, session_id = conversation(request)
    messages = [each for each in store.get_messages(session_id).messages if each["role"] != "tool"]
    waiting = [receipt.prompt for receipt in store.list_inputs(session_id)]
    is_busy = bool(waiting) or store.get_current_run(session_id) is not None
    return render(request, template, {"messages": messages, "waiting": waiting, "is_busy": is_busy})


@login_required
def chat(request):
    return shown(request, "chat.html")


@login_required
def messages(request):
    """What htmx asks for every second, as long as the agent is at work."""
    return shown(request, "messages.html")


@login_required
@require_POST
def send(request):
    store, session_id = conversation(request)
    store.admit_input(session_id, request.POST["text"])
    return shown(request, "messages.html")


@login_required
@require_POST
def stop(request):
    store, session_id = conversation(request)
    store.set_interrupt_flag(session_id, "Stopped by the user.")
    return shown(request, "messages.html")
