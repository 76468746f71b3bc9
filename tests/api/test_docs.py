"""The reference lists what there is, and the walk with curl does what it says."""

import json
import os
import re
import shutil
import subprocess

import pytest

from helix_sessions.api.urls import PUBLIC_ROUTES, ROUTES
from project.tokens import create_token
from tests.api.test_problems import CODES
from tests.docs.pages import page


def test_the_reference_has_every_address():
    shown = {cells[0].strip("`"): cells[1] for cells in page("reference/http.md").rows()}
    for route, view, _ in ROUTES + PUBLIC_ROUTES:
        address = re.sub(r"<\w+:(\w+)>", r"{\1}", route).replace("sessions/{session_id}", "{s}") + "/"
        methods = {
            method.upper()
            for method in ("get", "post", "put", "patch", "delete")
            if hasattr(view, method) and method in view.http_method_names
        }
        assert set(re.findall(r"\b(GET|POST|PUT|PATCH|DELETE)\b", shown.pop(address))) == methods, address
    shown.pop("{s}/events/stream/")  # a view of its own beside the table, because it answers for hours
    assert not [name for name in shown if "/" in name]


def test_the_reference_has_every_code():
    shown = {cells[0].strip("`"): cells[1] for cells in page("reference/http.md").rows()}
    roots = {"error", "not_found", "conflict"}
    assert {code: str(status) for code, status in CODES.items() if code not in roots}.items() <= shown.items()


def steps():
    """Each curl command with the answer that follows it."""
    blocks = [block for block in page("how-to/http.md").blocks if block.language in ("sh", "http")]
    assert [block.language for block in blocks] == ["sh", "http"] * (len(blocks) // 2)
    return list(zip(blocks[::2], blocks[1::2], strict=True))


def holds(shown, found):
    """Whether what is shown is part of what was found."""
    if isinstance(shown, dict):
        return all(name in found and holds(value, found[name]) for name, value in shown.items())
    if isinstance(shown, list):
        return len(shown) == len(found) and all(map(holds, shown, found))
    return shown == found


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
@pytest.mark.django_db(transaction=True)
def test_the_walk_with_curl(live_server, user):
    token = create_token(user, "walk")
    environment = {**os.environ, "HELIX": f"{live_server.url}/api", "AUTH": f"Authorization: Bearer {token}"}
    for command, answer in steps():
        script = command.code.replace("curl -i", "curl -i -sS --max-time 60", 1)
        done = subprocess.run(
            ["/bin/sh", "-ec", script], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        head, _, body = done.stdout.partition("\n\n")
        status, *lines = answer.code.strip().splitlines()
        assert head.split()[1] == status, done.stdout
        for line in lines:
            if line.startswith("{"):
                assert holds(json.loads(line), json.loads(body)), (line, body)
            else:
                assert line.lower() in head.lower(), (line, head)
