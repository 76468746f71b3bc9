"""What `make test` does not have: contract and front ends on other supported pairs of Python and Django, and
the agents and adapters of frameworks on their lowest supported versions."""

import sys
from importlib.metadata import version

import nox

nox.options.error_on_missing_interpreters = False

DJANGO = {"5.2": "Django>=5.2,<5.3", "6": "Django>=6.0,<7"}
PAIRS = [("3.11", "5.2"), ("3.12", "5.2"), ("3.12", "6"), ("3.13", "6")]
FOLDERS = ("contract", "store", "models", "api", "admin", "runtime", "maintenance", "observe")
NEED_MORE = ("tests/api/test_fuzz.py", "tests/api/test_generated_client.py")
"""Than `test-core` installs."""


def is_here(python: str, django: str) -> bool:
    """Whether this environment has the pair."""
    return python == "{}.{}".format(*sys.version_info) and version("Django").startswith(f"{django}.")


@nox.session
@nox.parametrize("python,django", [pair for pair in PAIRS if not is_here(*pair)])
def tests(session: nox.Session, django: str) -> None:
    """Run them on SQLite and on PostgreSQL."""
    session.install("-e", ".[binary,demo,test-core]", DJANGO[django])
    chosen = session.posargs or [
        *(f"tests/{folder}" for folder in FOLDERS),
        *(f"--ignore={path}" for path in NEED_MORE),
    ]
    session.run("python", "-m", "tests.run", "-q", *chosen)


LOWEST = {
    "pydantic-ai": ("pydantic-ai-slim==2.0.0", "fastmcp>=3.3,<4"),
    "langgraph": ("langgraph==1.0.10", "langgraph-checkpoint==4.0.1", "pydantic-ai-slim"),
    "openai-agents": ("openai-agents==0.19.0", "openai==2.45.0", "pydantic-ai-slim", "aiosqlite"),
    "google-adk": ("google-adk==2.8.0", "langgraph", "pydantic-ai-slim"),
}
"""The lowest versions that the extras take, and what tests need beside them. (The OpenAI Agents SDK before
0.20 breaks with newer versions of `openai`.)"""
# Not test_langgraph_oracle.py, which compares the order of writes with that of today's `InMemorySaver`.
TESTS = {
    "pydantic-ai": (
        *("agents/test_pydantic_ai.py", "agents/test_pydantic_ai_tools.py"),
        *("agents/test_crashes.py", "agents/test_durable.py"),
        *("integrations/test_pydantic_ai.py", "integrations/test_pydantic_ai_parts.py"),
    ),
    "langgraph": (
        *("agents/test_langgraph.py", "integrations/test_langgraph.py", "blobs/test_langgraph.py"),
        *(
            f"integrations/test_langgraph_{name}.py"
            for name in ("connections", "import", "isolation", "older_forms", "pruning", "strict", "waiting")
        ),
    ),
    "openai-agents": (
        *("agents/test_openai_agents.py", "integrations/test_openai_agents.py"),
        "integrations/test_openai_branches.py",
    ),
    "google-adk": (
        "integrations/test_google_adk.py",
        "integrations/test_memories.py",
        "blobs/test_artifacts.py",
    ),
}


@nox.session
@nox.parametrize("framework", list(LOWEST))
def lowest(session: nox.Session, framework: str) -> None:
    """Run the tests of a framework's agents and adapters on its lowest supported version; `make test` has the
    newest."""
    session.install("-e", ".[binary,test-core]", "uvicorn", "Markdown", "drf-spectacular-sidecar")
    session.install(*LOWEST[framework])
    chosen = session.posargs or [f"tests/{name}" for name in TESTS[framework]]
    session.run("python", "-m", "tests.run", "-q", *chosen)
