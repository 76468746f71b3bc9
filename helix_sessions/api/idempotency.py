"""`Idempotency-Key`: a retried POST gets the same response, and is not done again."""

from collections.abc import Callable
from functools import partial, wraps
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar, cast

from django.http import HttpResponse

from helix_sessions.api.exceptions import problem_of, status_of
from helix_sessions.conf import conf
from helix_sessions.content import documents
from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.store import SessionStore
from helix_sessions.types import Answer

if TYPE_CHECKING:
    from helix_sessions.api.views.base import View

F = TypeVar("F", bound=Callable[..., HttpResponse])

_Asked = tuple[Any, str, str]
"""The user, the key, and the digest of the request."""

_KEPT_HEADERS = ("Content-Type", "ETag", "Location", "Link")


def idempotent(method: F) -> F:
    """Let a `post` honour `Idempotency-Key`. Responses of the store are kept, refusals too; a request that
    was not tried (malformed, or the session busy) is not."""
    return _keyed(method, _at_once)


def idempotent_without_a_lock(method: F) -> F:
    """The same for a slow `post` that must hold no lock: the response is kept after the work. The `post`
    itself must prevent concurrent duplicates."""
    return _keyed(method, _after_the_work)


def _keyed(method: F, answered: Callable[[_Asked, Callable[[], Answer]], Answer]) -> F:
    @wraps(method)
    def once(view: "View", request: Any, **kwargs: Any) -> HttpResponse:
        call = partial(method, view, request, **kwargs)
        key = request.headers.get("Idempotency-Key")
        if key is None:
            return call()
        return _response(answered((request.user, key, _digest(view)), partial(_answer, call)))

    once.is_idempotent = True  # type: ignore[attr-defined]
    return cast(F, once)


def _at_once(asked: _Asked, answer: Callable[[], Answer]) -> Answer:
    return _store().answer_once(*asked, answer)


def _after_the_work(asked: _Asked, answer: Callable[[], Answer]) -> Answer:
    try:
        return _store().answer_once(*asked, _not_yet)
    except _NotAnsweredYet:
        given = answer()
    return _store().answer_once(*asked, lambda: given)


class _NotAnsweredYet(Exception):
    pass


def _not_yet() -> Answer:
    raise _NotAnsweredYet


def _store() -> SessionStore:
    return SessionStore(conf.API_DATABASE)


def _answer(call: Callable[[], HttpResponse]) -> Answer:
    try:
        response = call()
    except HelixSessionsError as error:
        if status_of(error) >= 500:
            raise
        response = problem_of(error)
    headers = {name: response[name] for name in _KEPT_HEADERS if name in response}
    return Answer(status=response.status_code, headers=headers, body=response.content.decode())


def _response(answer: Answer) -> HttpResponse:
    response = HttpResponse(answer.body, status=answer.status, headers=answer.headers)
    if answer.replayed:
        response["Idempotency-Replayed"] = "true"
    return response


def _digest(view: "View") -> str:
    """The digest of a request: its route, its `If-Match`, and its body."""
    request = view.request
    expected = request.headers.get("If-Match", "")
    return documents.digest(
        request.method or "", request.get_full_path(), expected, blake2b(view.body).hexdigest()
    )
