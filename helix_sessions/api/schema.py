"""Describes each operation for drf-spectacular, where it is installed.

Views use `operation`, which also names the verb for the policy; without drf-spectacular it does nothing else.
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
    400: "The request is invalid.",
    401: "The request is not authenticated.",
    403: "This user may not do this.",
    404: "It does not exist, or this user may not see it.",
    406: "Only JSON is supported.",
    409: "The stored state does not allow this call.",
    411: "A body needs a length.",
    412: "The session is not at the version in `If-Match`.",
    413: "The body is larger than allowed.",
    415: "The body is not JSON.",
    422: "A document or a write cannot be used, or the `Idempotency-Key` was used for another request.",
    429: "Too many requests; `Retry-After` says when to retry.",
    503: "Timeout waiting for the session's lock; nothing was written. Retry.",
}


@dataclass(frozen=True)
class Query:
    """A query parameter."""

    name: str
    description: str
    type: Any = str
    many: bool = False
    enum: Sequence[str] | None = None


_EVENTS = "text/event-stream"

UNFENCED = frozenset({"create_session", "acquire_lease", "cleanup_orphaned_staging"})
"""Writes that are made under no lease."""

LIMIT = Query("limit", "How many rows at most.", int)
CURSOR = Query("cursor", "`next_cursor` of the page before.")
PAGE = (LIMIT, CURSOR)


def verb(name: str) -> Callable[[F], F]:
    """Name what a method of a view does, as the policy is asked about it."""

    def named(method: F) -> F:
        method.verb = name  # type: ignore[attr-defined]
        return method

    return named


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
    also_example: Any = None,
    query: Sequence[Query] = (),
    etag: bool = True,
    if_match: bool = False,
    linked: bool = False,
    located: bool = False,
    public: bool = False,
    fence: bool = False,
    streams: bool = False,
    frames: str | None = None,
) -> Callable[[F], F]:
    """Describe a method of a view. One that `streams` sends server-sent events, of which `frames` are an
    example; then there may be a `response` for those who do not take them.

    `request` is a serializer; `response`, and each of `also`, is the type of what the method sends,
    `bytes` for a content as it is.
    `sent` and `example` are examples of both, `also_example` of another body. A `public` method takes
    requests without a login.
    """
    named = verb(operation_id)
    if extend_schema is None:
        return named

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
            if (streams or frames) and code == status:
                responses[code, _EVENTS] = OpenApiResponse(str, description="Server-sent events.")
                if body is None:
                    continue
            if body is None:
                responses[code] = None
                continue
            if body is bytes:
                responses[code, "application/octet-stream"] = OpenApiResponse(bytes)
                continue
            answer = OpenApiResponse(Output(body), description=_DESCRIPTIONS.get(code, ""))
            responses[code, PROBLEM if body is Problem else "application/json"] = answer
        if name == "get" and etag:
            responses[304] = OpenApiResponse(description="Nothing has changed since `If-None-Match`.")
        parameters = [_query(each) for each in query]
        parameters += _headers(
            name, statuses, etag=etag, if_match=if_match, linked=linked, located=located, keyed=not public
        )
        if name != "get" and not public and operation_id not in UNFENCED:
            parameters.append(_fence(required=fence))
        examples = []
        if example is not None:
            bodies = {status: response, **(also or {})}
            codes = [str(code) for code, body in bodies.items() if code < 300 and body == response]
            examples.append(
                OpenApiExample(f"{operation_id}_answer", example, response_only=True, status_codes=codes)
            )
        if also_example is not None:
            codes = [str(code) for code in statuses if code < 300 and str(code) not in codes]
            examples.append(
                OpenApiExample(f"{operation_id}_also", also_example, response_only=True, status_codes=codes)
            )
        if frames is not None:
            parameters.append(OpenApiParameter("format", exclude=True))
            examples.append(
                OpenApiExample(f"{operation_id}_frames", frames, response_only=True, media_type=_EVENTS)
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
        return named(decorated)

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


def _fence(*, required: bool) -> Any:
    return OpenApiParameter(
        "Helix-Fence",
        int,
        OpenApiParameter.HEADER,
        description="The fence of the lease this is written under; 409 `fenced` once it is not the newest.",
        required=required,
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
        sent(
            "Idempotency-Key",
            "A retry with the same key and request gets the same response.",
        )
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
