"""How a session that is to run reaches a worker: by a task, on the backend that the project has configured.

Where `TASKS` is not configured none is scheduled, and `manage.py run_sessions` finds the session by polling.
"""

from typing import Any

from django.conf import settings

from helix_sessions.conf import conf
from helix_sessions.exceptions import NotConfigured
from helix_sessions.runtime.agents import agent_for, configured_agents
from helix_sessions.runtime.compaction import configured_policy, configured_summarizer
from helix_sessions.runtime.loop.runner import LEASE_SECONDS, SessionRunner, claim_next, new_owner
from helix_sessions.runtime.loop.session_loop import IDLE
from helix_sessions.runtime.sources import configured_sources
from helix_sessions.store import SessionStore
from helix_sessions.types import RunOutcome


def wake_session(session_id: str, *, agent_type: str, using: str) -> bool:
    """The default of `WAKER`: schedule a task that wakes the session; whether there is a backend and an agent
    for it."""
    configured: Any = settings  # `TASKS` has a default that runs tasks at once, inside the request
    if not configured.is_overridden("TASKS") or agent_for(agent_type) is None:
        return False
    from helix_sessions import tasks  # needs django.tasks or django-tasks

    task: Any = tasks.wake_session
    task.enqueue(session_id=session_id, database=using)
    return True


def runner_for(session_id: str, using: str | None) -> SessionRunner:
    """A runner with the agent that the settings name for the session."""
    store = SessionStore(using)
    agent_type = store.get_session_head(session_id).agent_type
    agent = agent_for(agent_type)
    if agent is None:
        raise NotConfigured(f"AGENTS names no agent for sessions of the type {agent_type!r:.100}.")
    return configured_runner(agent, store)


def configured_runner(agent: Any, store: SessionStore, **options: Any) -> SessionRunner:
    """A runner with the context sources and the compaction of the settings. It compacts by itself where
    both the policy and the summarizer are named."""
    compacts = bool(conf.COMPACTION and conf.SUMMARIZER)
    return SessionRunner(
        agent,
        store=store,
        sources=configured_sources(),
        compaction=configured_policy() if compacts else None,
        summarize=configured_summarizer() if compacts else None,
        **options,
    )


def drive(session_id: str, using: str | None, *, forced: bool) -> RunOutcome:
    """What the tasks do: a run, if it is `forced`, or else what is due. For a hint that comes too late that
    is nothing."""
    runner = runner_for(session_id, using)
    if forced:
        return runner.run(session_id)
    driver = runner.claim_due(session_id)
    return IDLE if driver is None else runner.drive_claimed(driver)


def sweep(using: str | None) -> int:
    """Fire the schedules that are due, settle the deadlines that have passed, and drive every session that is
    runnable and whose type has an agent; how many those were."""
    store, named = SessionStore(using), configured_agents()
    types = None if "*" in named else list(named)
    owner, swept = new_owner(), 0
    store.fire_schedules()
    store.settle_expired_calls()
    while (driver := claim_next(store, owner, LEASE_SECONDS, agent_types=types)) is not None:
        runner = configured_runner(agent_for(driver.known.row.agent_type), store)
        swept += runner.drive_claimed(driver).kind != "idle"
    return swept
