"""What each operation looks like from outside, for drf-spectacular where it is installed.

Views say it with `operation`; without drf-spectacular it does nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from helix_sessions.api.exceptions import PROBLEM
from helix_sessions.api.outputs import Problem

try:
    from drf_spectacular.utils import (
        OpenApiExample,
        OpenApiParameter,
        OpenApiResponse,
        PolymorphicProxySerializer,
        extend_schema,
    )

    from helix_sessions.api.components import Output
except ImportError:  # pragma: no cover - the extra `schema` is not installed
    extend_schema = None  # type: ignore[assignment]

F = TypeVar("F", bound=Callable[..., Any])

READ_ERRORS = (400, 401, 403, 404, 406, 429)
WRITE_ERRORS = (400, 401, 403, 404, 406, 409, 411, 412, 413, 415, 422, 429, 503)

_DESCRIPTIONS = {
    400: "The request is not of the form this call takes.",
    401: "Who is asking is not known.",
    403: "This user may not do this.",
    404: "There is none that this user may reach.",
    406: "Only JSON is spoken here.",
    409: "What is stored does not allow this call.",
    411: "A body needs a length.",
    412: "The session has moved on from the version in `If-Match`.",
    413: "The body is larger than allowed.",
    415: "The body is not JSON.",
    422: "A document or a write cannot be used, or the `Idempotency-Key` was used for another request.",
    429: "Too many requests; `Retry-After` says when to go on.",
    503: "The session was locked for too long; nothing was written. Try again.",
}


@dataclass(frozen=True)
class Query:
    """A query parameter."""

    name: str
    description: str
    type: Any = str
    many: bool = False
    enum: Sequence[str] | None = None


LIMIT = Query("limit", "How many rows at most.", int)
CURSOR = Query("cursor", "`next_cursor` of the page before.")
PAGE = (LIMIT, CURSOR)


def operation(
    operation_id: str,
    *,
    tag: str,
    request: Any = None,
    sent: Any = None,
    sent_as_patch: Any = None,
    response: Any = None,
    status: int = 200,
    example: Any = None,
    also: dict[int, Any] | None = None,
    query: Sequence[Query] = (),
    etag: bool = True,
    if_match: bool = False,
    linked: bool = False,
    located: bool = False,
    public: bool = False,
) -> Callable[[F], F]:
    """Describe a method of a view.

    `request` is a serializer; `response`, and each of `also`, is the type of what the method sends.
    `sent` and `example` are examples of both. A `public` method takes requests without a login.
    """
    if extend_schema is None:

        def unchanged(method: F) -> F:
            return method

        return unchanged

    def described(method: F) -> F:
        name = method.__name__
        statuses = (status, *(also or {}))
        errors = READ_ERRORS if name == "get" else WRITE_ERRORS
        responses: dict[Any, Any] = {
            (code, PROBLEM): OpenApiResponse(Output(Problem), description=_DESCRIPTIONS[code])
            for code in errors
            if code not in statuses and not (public and code in (401, 403))
        }
        for code, body in {status: response, **(also or {})}.items():
            if body is None:
                responses[code] = None
                continue
            answer = OpenApiResponse(Output(body), description=_DESCRIPTIONS.get(code, ""))
            responses[code, PROBLEM if body is Problem else "application/json"] = answer
        if name == "get" and etag:
            responses[304] = OpenApiResponse(description="Nothing has changed since `If-None-Match`.")
        parameters = [_query(each) for each in query]
        parameters += _headers(
            name, statuses, etag=etag, if_match=if_match, linked=linked, located=located, keyed=not public
        )
        examples = []
        if example is not None:
            codes = [str(code) for code in statuses if code < 300]
            examples.append(
                OpenApiExample(f"{operation_id}_answer", example, response_only=True, status_codes=codes)
            )
        if sent is not None:
            examples.append(_sent(f"{operation_id}_request", sent, "application/json"))
        if sent_as_patch is not None:
            examples.append(_sent(f"{operation_id}_patch", sent_as_patch, "application/json-patch+json"))
        decorated: F = extend_schema(
            operation_id=operation_id,
            tags=[tag],
            summary=(method.__doc__ or "").partition("\n")[0].strip().rstrip("."),
            request=request,
            responses=responses,
            parameters=parameters,
            examples=examples,
            auth=[] if public else None,
        )(method)
        return decorated

    return described


def listing(
    operation_id: str, *, response: Any, example: Any, query: Sequence[Query] = (), **options: Any
) -> Callable[[F], F]:
    """Describe a method that sends a page. `example` is one of its items."""
    example = {"items": [example], "next_cursor": None}
    query = (*query, *PAGE)
    return operation(operation_id, response=response, example=example, query=query, linked=True, **options)


def union(name: str, told_by: str, kinds: dict[str, Any]) -> Any:
    """One of several bodies, told apart by the value of a field."""
    if extend_schema is None:
        return None
    return PolymorphicProxySerializer(
        component_name=name, serializers=kinds, resource_type_field_name=told_by
    )


def _sent(name: str, value: Any, media_type: str) -> Any:
    return OpenApiExample(name, value, request_only=True, media_type=media_type)


def _query(query: Query) -> Any:
    return OpenApiParameter(
        query.name,
        query.type,
        OpenApiParameter.QUERY,
        description=query.description,
        many=query.many,
        enum=query.enum,
    )


def _headers(
    method: str,
    statuses: Sequence[int],
    *,
    etag: bool,
    if_match: bool,
    linked: bool,
    located: bool,
    keyed: bool,
) -> list[Any]:
    good = [code for code in statuses if code < 300]
    found = []

    def sent(name: str, description: str) -> None:
        found.append(OpenApiParameter(name, str, OpenApiParameter.HEADER, description=description))

    def answered(name: str, description: str, codes: list[int]) -> None:
        found.append(
            OpenApiParameter(name, str, OpenApiParameter.HEADER, description=description, response=codes)
        )

    if method == "post" and keyed:
        sent("Idempotency-Key", "The same key and request again gets the same answer, and does nothing.")
    if if_match:
        sent("If-Match", 'The version the session must have, in quotes: `"12"`.')
    if method == "get" and etag:
        sent("If-None-Match", "The `ETag` of what the caller has; 304 when it is still current.")
    if etag:
        answered("ETag", "The version of the session, in quotes.", good)
    if linked:
        answered("Link", 'The next page, with `rel="next"`; absent on the last one.', good)
    if located:
        answered("Location", "Where the new session is.", [201])
    return found
