"""What the API sends, and how the schema describes it: both come from the same types."""

import re
import subprocess
import sys
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NotRequired, TypedDict

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from helix_sessions import types
from helix_sessions.api import outputs
from helix_sessions.api.components import name_of, object_of
from helix_sessions.api.exceptions import problem_of
from helix_sessions.api.urls import ROUTES
from tests.api.filled import fill, headers_of, prepare
from tests.api.golden import GOLDEN
from tests.api.routes import BODIES, FRONT_ENDS, QUERIES, address, every_method
from tests.api.test_problems import all_errors, made
from tests.api.test_who_may import OPERATED, UNDER_A_LEASE

pytestmark = pytest.mark.once

PATHS = {name: "/api/" + re.sub(r"<\w+:(\w+)>", r"{\1}", route) + "/" for route, _, name in ROUTES}


def closed(schema):
    """Return the schema with no other keys than it names."""
    if isinstance(schema, dict):
        extra = {"additionalProperties": False} if "properties" in schema else {}
        return extra | {key: closed(value) for key, value in schema.items()}
    return [closed(each) for each in schema] if isinstance(schema, list) else schema


@pytest.fixture(scope="module")
def document():
    return closed(yaml.safe_load(GOLDEN.read_text(encoding="utf-8")))


def wrong(document, content, value):
    """Return what is wrong with a value, by the schema of the content."""
    schema = {**content["schema"], "components": document["components"]}
    errors = Draft202012Validator(schema).iter_errors(value)
    return [f"{error.json_path}: {error.message:.200}" for error in errors]


@pytest.mark.django_db
def test_every_answer_has_exactly_the_keys_of_its_schema(document, api, store, user):
    for method, name in every_method():
        for left in ("s", "sub", "branch"):
            if store.session_exists(left):
                store.delete_session(left)
        store.create_session("s", agent_type="test", owner=user)
        fill(store, "s")
        store.append_messages("s", [{"role": "user", "content": "hello"}])
        if "interrupt" in name:
            store.set_interrupt_flag("s", "stop")
        if (method, name) in UNDER_A_LEASE or name in (*OPERATED, *FRONT_ENDS):
            continue
        if method == "post":
            prepare(store, "s", name)
        body = {"run_id": "r2"} if (method, name) == ("post", "runs") else BODIES.get((method, name))
        path, headers = address(name, "s"), headers_of(store, "s", method, name)
        response = getattr(api, method)(path + QUERIES.get((method, name), ""), body, headers=headers)
        answers = document["paths"][PATHS.get(name, "/api/")][method]["responses"]
        answer = answers[str(response.status_code)]
        if response.content:
            content = answer["content"]["application/json"]
            assert wrong(document, content, response.json()) == [], f"{method} {name}"
        else:
            assert "content" not in answer, f"{method} {name}"


def test_every_example_has_exactly_the_keys_of_its_schema(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                for content in response.get("content", {}).values():
                    for example in content.get("examples", {}).values():
                        found = wrong(document, content, example["value"])
                        assert found == [], f"{method} {path} {status}"


def test_every_problem_has_only_keys_of_the_schema(document):
    content = {"schema": {"$ref": "#/components/schemas/Problem"}}
    for kind in all_errors():
        body = problem_of(made(kind)).content
        assert wrong(document, content, yaml.safe_load(body)) == [], kind.__name__


def test_an_agents_state_is_sent_without_its_messages_only():
    kept = {each.name for each in fields(types.AgentState)} - {"messages"}
    assert set(outputs.AgentState.__annotations__) == kept | {"message_count"}


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """What is inside."""

    number: int


class Extra(TypedDict):
    always: bool
    sometimes: NotRequired[float]
    """Left out at other times."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """What goes out.

    More of it for those who read the code.
    """

    constant: ClassVar[int] = 1
    text: str
    """Text, or
    `None`."""
    maybe: str | None = None
    word: Annotated[str, Literal["a", "b"]] = "a"
    key: Annotated[Any, int | str | None] = None
    stored_at: Annotated[datetime | None, datetime] = None
    anything: Any = None
    ok: Literal[True] = True
    document: dict[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    pair: tuple[str, str | None] | None = None
    leaf: Leaf | None = None
    leaves: list[Leaf] = field(default_factory=list)


def test_a_component_is_made_of_the_fields_of_its_type():
    def reference(kind):
        return {"$ref": name_of(kind)}

    def properties(kind):
        return object_of(kind, reference)["properties"]

    whole = object_of(Value, reference)
    found = whole["properties"]
    assert whole["description"] == "What goes out."
    assert whole["required"] == sorted(found) == sorted(each.name for each in fields(Value))
    word = found.pop("word")
    assert (word["enum"], word["type"]) == (["a", "b"], "string")
    maybe_text = {"type": ["string", "null"]}
    assert found == {
        "text": {"type": "string", "description": "Text, or `null`."},
        "maybe": maybe_text,
        "key": {"type": ["integer", "string", "null"]},
        "stored_at": {"type": "string", "format": "date-time"},
        "anything": {},
        "ok": {"type": "boolean"},
        "document": {"type": "object", "additionalProperties": {}},
        "tags": {"type": "array", "items": {"type": "string"}},
        "pair": {"type": ["array", "null"], "items": maybe_text, "minItems": 2, "maxItems": 2},
        "leaf": {"oneOf": [{"$ref": "Leaf"}, {"type": "null"}]},
        "leaves": {"type": "array", "items": {"$ref": "Leaf"}},
    }
    assert object_of(Extra, reference)["required"] == ["always"]
    assert properties(Extra)["sometimes"]["description"] == "Left out at other times."
    assert name_of(types.Page[Leaf]) == "LeafPage"
    assert properties(types.Page[Leaf])["items"]["items"] == {"$ref": "Leaf"}


WITHOUT_THE_EXTRA = """
import sys
sys.modules["drf_spectacular"] = None
import django
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "rest_framework", "helix_sessions"],
    ALLOWED_HOSTS=["testserver"],
    ROOT_URLCONF="__main__",
    USE_TZ=True,
)
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.urls import include, path
from rest_framework.test import APIClient
urlpatterns = [path("", include("helix_sessions.api.urls"))]
call_command("migrate", verbosity=0)
client = APIClient()
client.force_authenticate(User.objects.create_superuser("ada"))
made = client.post("/sessions/", {"session_id": "s", "agent_type": "a"}, format="json")
acted = client.post("/sessions/s/actions/", {"action": "SuspendSession"}, format="json")
print(made.status_code, acted.json()["info"]["status"], client.get("/sessions/s/counters/").json())
"""


def test_the_api_works_without_drf_spectacular():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_EXTRA],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    said = done.stdout.strip()
    assert said == "201 suspended {'step_count': 0, 'resume_count': 0, 'version': 2}", done.stderr
