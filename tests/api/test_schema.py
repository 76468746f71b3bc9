"""The schema people generate clients from. A change of it is a change of the golden file:
`python -m tests.api.golden`."""

import subprocess
import sys

import pytest
from django.core.management import call_command
from rest_framework.test import APIClient

from helix_sessions.api.policy import CREATING_VERBS, OPERATOR_VERBS, PARTICIPANT_VERBS
from tests.api.golden import GOLDEN, generated, parsed
from tests.api.routes import every_method
from tests.parallel import ROOT
from tests.rows import each


def operations(schema):
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            if method != "parameters":
                yield path, method, operation


def is_public(operation):
    return operation.get("security") in (None, [], [{}])


@pytest.fixture(scope="module")
def schema():
    return parsed(generated())


def test_it_is_valid_without_warnings(tmp_path):
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(tmp_path / "schema.yaml"))


PLAIN = """
import sys
import django
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "rest_framework",
                    "drf_spectacular", "helix_sessions"],
    ROOT_URLCONF="__main__",
    REST_FRAMEWORK={
        "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
        "DEFAULT_VERSIONING_CLASS": "rest_framework.versioning.NamespaceVersioning",
    },
    USE_TZ=True,
)
django.setup()
from django.core.management import call_command
from django.urls import include, path
urlpatterns = [path("api/", include("helix_sessions.api.urls"))]
call_command("spectacular", "--validate", "--fail-on-warn", "--file", sys.argv[1])
"""


def test_in_a_plain_project_it_is_valid_without_warnings_too(tmp_path, schema):
    file = tmp_path / "schema.yaml"
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, str(file)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    plain = parsed(file.read_text(encoding="utf-8"))
    assert plain["openapi"].startswith("3.0")
    assert set(plain["paths"]) == set(schema["paths"])
    objects = {name.removeprefix("Patched") for name in plain["components"]["schemas"]}
    assert objects >= set(schema["components"]["schemas"])
    assert [name for name in objects if not name.isalpha()] == [], "people read these names"


def test_it_is_the_golden_file():
    assert generated() == GOLDEN.read_text(encoding="utf-8"), "python -m tests.api.golden writes it anew"


def test_it_is_openapi_3_1(schema):
    assert schema["openapi"].startswith("3.1")


def test_every_method_is_an_operation(schema):
    public = {operation["operationId"] for _, _, operation in operations(schema) if is_public(operation)}
    assert public == {"read_answer_link", "submit_by_answer_link", "download_blob"}
    streams = {"follow_events"}
    assert len(list(operations(schema))) == len(every_method()) + len(public | streams)


def test_every_verb_is_named(schema):
    named = {operation["operationId"] for _, _, operation in operations(schema)}
    text = " ".join(operation["description"] for _, _, operation in operations(schema))
    verbs = PARTICIPANT_VERBS | set(OPERATOR_VERBS) | CREATING_VERBS
    assert [verb for verb in verbs - named if f"`{verb}`" not in text] == []


def test_operations_are_named_once(schema):
    names = [operation["operationId"] for _, _, operation in operations(schema)]
    assert len(names) == len(set(names))


def test_every_operation_says_who_may_and_what_fails(schema):
    for path, method, operation in operations(schema):
        if is_public(operation):
            assert not {"401", "403"} & set(operation["responses"])
        else:
            named = ["streamTicket"] if operation["operationId"] == "follow_events" else []
            assert operation["security"] == [{name: []} for name in (*named, "token", "cookieAuth")]
        for status, response in operation["responses"].items():
            if status >= "400":
                assert list(response["content"]) == ["application/problem+json"], f"{method} {path} {status}"


@pytest.mark.django_db
@each("path", ["/schema/", "/schema/swagger/", "/schema/redoc/"])
def test_the_demo_shows_it_offline(path):
    response = APIClient().get(path)
    assert response.status_code == 200
    text = response.content.decode()
    for foreign in ("cdn.", "unpkg", "jsdelivr", "googleapis"):
        assert foreign not in text
