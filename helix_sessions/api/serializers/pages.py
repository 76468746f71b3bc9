"""Query parameters of listings."""

from typing import Any

from rest_framework import serializers

from helix_sessions.api.serializers.fields import Input
from helix_sessions.conf import conf


class LimitQuery(Input):
    limit = serializers.IntegerField(required=False, min_value=1)

    def validate_limit(self, value: int) -> int:
        if value > conf.API_MAX_PAGE_SIZE:
            raise serializers.ValidationError(f"At most {conf.API_MAX_PAGE_SIZE} rows are given at once.")
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return {"limit": conf.API_PAGE_SIZE, **attrs}


class PageQuery(LimitQuery):
    cursor = serializers.CharField(required=False, max_length=4096)


class NoQuery(Input):
    """No query parameters are taken."""
