"""Releases what Django keeps for the duration of a request, for requests that last for hours."""

from asgiref.sync import SyncToAsync
from django.db import connections


def release_request_thread() -> None:
    """Release the thread that an ASGI request has for its synchronous parts, and its connections.

    A new one is made if it is needed again. Called in the request's own task.
    """
    context = SyncToAsync.thread_sensitive_context.get(None)
    if context is None or getattr(context, "_executor", None) is not None:
        return
    executor = SyncToAsync.context_to_thread_executor.pop(context, None)
    if executor is not None:
        executor.submit(connections.close_all)
        executor.shutdown(wait=False)
