"""Pages: a bounded limit, an opaque cursor, and the next page as a `Link`."""

from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api.responses import json_response
from helix_sessions.types import Page


def links(request: Request, next_cursor: str | None) -> dict[str, str]:
    """The `Link` header to the page after this one, if there is one."""
    if next_cursor is None:
        return {}
    query = request.query_params.copy()
    query.pop("offset", None)
    query["cursor"] = next_cursor
    url = request.build_absolute_uri(f"{request.path}?{query.urlencode()}")
    return {"Link": f'<{url}>; rel="next"'}


def page_response(request: Request, page: Page[Any], **options: Any) -> HttpResponse:
    """A page of a listing."""
    return json_response(page, headers=links(request, page.next_cursor), **options)
