"""Tests of Google's ADK that are not run with our services, and why: by file and name."""

EXCLUDED: dict[str, dict[str, str]] = {}
