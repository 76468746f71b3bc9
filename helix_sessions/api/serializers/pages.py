"""Query parameters of listings."""

from typing import Any

from rest_framework import serializers

from helix_sessions.api.serializers.fields import Input

PAGE_SIZE = 50
"""The rows on a page when the request has no `limit`."""

MAX_PAGE_SIZE = 500


class LimitQuery(Input):
    limit = serializers.IntegerField(required=False, min_value=1)

    def validate_limit(self, value: int) -> int:
        if value > MAX_PAGE_SIZE:
            raise serializers.ValidationError(f"At most {MAX_PAGE_SIZE} rows are given at once.")
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return {"limit": PAGE_SIZE, **attrs}


class PageQuery(LimitQuery):
    cursor = serializers.CharField(required=False, max_length=4096)


class NoQuery(Input):
    """No query parameters are taken."""
