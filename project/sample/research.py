"""A research agent with sub-agents: a tree three deep that waits for its branches and for a browser."""

from datetime import timedelta
from typing import Any

from helix_sessions.store import SessionStore
from project.sample.clock import Clock
from project.sample.story import Story
from project.sample.waiting import pending_call

ROOT = "research-heat-pumps"
MARKET = "research-heat-pumps-market"
POLICY = "research-heat-pumps-policy"
GERMANY = "research-heat-pumps-policy-germany"
FRANCE = "research-heat-pumps-policy-france"
NOTES = "research-notes"


def tell(store: SessionStore, owner: Any, clock: Clock) -> None:
    """What would a supplier of heat pumps have to know before it enters two countries?"""
    clock.go_to(hours=5)
    root = Story(
        store,
        ROOT,
        agent_type="researcher",
        owner=owner,
        clock=clock,
        user_id="team-strategy",
        tags=["energy", "market-entry"],
        metadata={"project": "HP-EU", "requested_by": "strategy"},
        custom_state={"question": "Heat pumps in Germany and France", "sources": [], "findings": {}},
        tracing_context={"traceparent": "00-7d2b1f0c9a6e4d53b8f1c2a4e6d80913-51c9a3e7f2b4d608-01"},
    )
    root.begin("Should we offer our heat pumps in Germany and France next year? Two pages, with sources.")
    root.say(
        "I split this into the market and the policy of both countries and collect the sources.",
        writes=[{"op": "set", "path": ["plan"], "value": ["market", "policy", "summary"]}],
    )
    market_call = root.call("delegate", {"to": "market analyst", "task": "size and growth, 2023 to 2025"})
    policy_call = root.call("delegate", {"to": "policy analyst", "task": "subsidies and bans, by country"})
    store.add_sub_session_refs(
        ROOT,
        [
            {"sub_session_id": MARKET, "agent_type": "market-analyst", "parent_tool_call_id": market_call},
            {"sub_session_id": POLICY, "agent_type": "policy-analyst", "parent_tool_call_id": policy_call},
            {"sub_session_id": NOTES, "agent_type": "note-keeper", "mode": "persistent"},
            {"sub_session_id": "costs-7f3", "agent_type": "cost-model", "location": "remote"},
        ],
    )
    _notes(store, owner, clock)
    root.answer(market_call, "delegate", _market(store, owner, clock))
    browser_call = _policy(store, owner, clock)
    root.save(
        suspended_awaiting_children={
            policy_call: {
                "parent_tool_call_id": policy_call,
                "sub_session_id": POLICY,
                "agent_type": "policy-analyst",
            }
        },
        client_tool_call_ownership={browser_call: POLICY},
        suspended_step_id="step-3",
        location={"region": "eu-central", "workspace": "hp-eu"},
        workspace_ref={"provider": "volume", "id": "ws-hp-eu"},
    )
    root.end(status="suspended_awaiting_children")


def _notes(store: SessionStore, owner: Any, clock: Clock) -> None:
    story = Story(
        store,
        NOTES,
        agent_type="note-keeper",
        owner=owner,
        clock=clock,
        parent_session_id=ROOT,
        mode="persistent",
        tags=["energy"],
        custom_state={"notes": ["Write amounts in euros.", "Name the year of every number."]},
    )
    story.begin("Keep what the team has decided about wording.")
    story.say("Noted. I tell every analyst before it starts.")
    story.end()


def _market(store: SessionStore, owner: Any, clock: Clock) -> dict[str, str]:
    story = Story(
        store,
        MARKET,
        agent_type="market-analyst",
        owner=owner,
        clock=clock,
        parent_session_id=ROOT,
        tags=["energy"],
        custom_state={"sources": []},
    )
    story.begin("Size and growth of the heat pump market in Germany and France, 2023 to 2025.")
    story.use(
        "search",
        {"query": "heat pump sales Germany France by year"},
        [
            {"title": "Industry association, yearly figures", "kind": "statistics"},
            {"title": "Statistics office, building permits by heating system", "kind": "statistics"},
        ],
        writes=[{"op": "append", "path": ["sources"], "values": ["association", "statistics office"]}],
    )
    story.say(
        "Both markets shrank after the record of 2022 and 2023 and have begun to recover. New buildings hold "
        "steady; the swings come from renovation, which follows the subsidies."
    )
    story.end()
    result = {"summary": "Shrinking, then recovering; renovation follows subsidies.", "confidence": "medium"}
    story.finish(result)
    store.update_sub_session_ref(ROOT, MARKET, status="completed", result=result)
    return result


def _policy(store: SessionStore, owner: Any, clock: Clock) -> str:
    """Returns the id of the call that waits for a user's browser."""
    story = Story(
        store,
        POLICY,
        agent_type="policy-analyst",
        owner=owner,
        clock=clock,
        parent_session_id=ROOT,
        tags=["energy", "policy"],
        custom_state={"countries": {}},
    )
    run = story.begin("Subsidies and bans for heating in Germany and France, as they stand today.")
    germany_call = story.call("delegate", {"to": "country reader", "country": "Germany"})
    france_call = story.call("delegate", {"to": "country reader", "country": "France"})
    store.add_sub_session_refs(
        POLICY,
        [
            {"sub_session_id": GERMANY, "agent_type": "country-reader", "parent_tool_call_id": germany_call},
            {"sub_session_id": FRANCE, "agent_type": "country-reader", "parent_tool_call_id": france_call},
        ],
    )
    story.answer(germany_call, "delegate", _germany(store, owner, clock))
    story.answer(france_call, "delegate", _france(store, owner, clock), is_error=True)
    page = {"url": "https://energy-agency.example/members/subsidies", "why": "it is behind a login"}
    call_id = story.call(
        "open_in_browser", page, thought="The French table is for members. I need your browser."
    )
    waiting = pending_call(call_id, "open_in_browser", page, run, deadline_in=timedelta(hours=12))
    story.save(pending_client_tool_calls={call_id: waiting}, suspended_step_id="step-3")
    story.end(status="suspended_client_tool")
    return call_id


def _germany(store: SessionStore, owner: Any, clock: Clock) -> dict[str, Any]:
    story = Story(
        store,
        GERMANY,
        agent_type="country-reader",
        owner=owner,
        clock=clock,
        parent_session_id=POLICY,
        tags=["policy"],
    )
    story.begin("Read the current German rules for heating and list what is paid and what is forbidden.")
    story.use(
        "fetch", {"what": "building energy act, current text"}, {"pages": 94, "language": "de"}, seconds=31
    )
    story.say("New heating must run on a large share of renewable energy; grants depend on income and speed.")
    story.end()
    result = {
        "paid": ["base grant", "speed bonus", "income bonus"],
        "forbidden": "oil and gas alone, in steps",
    }
    story.finish(result)
    store.update_sub_session_ref(POLICY, GERMANY, status="completed", result=result)
    return result


def _france(store: SessionStore, owner: Any, clock: Clock) -> str:
    story = Story(
        store,
        FRANCE,
        agent_type="country-reader",
        owner=owner,
        clock=clock,
        parent_session_id=POLICY,
        tags=["policy"],
    )
    story.begin("Read the current French rules for heating and list what is paid and what is forbidden.")
    story.use(
        "fetch",
        {"what": "subsidy table, members' area"},
        {"error": "403: this page is for members"},
        is_error=True,
    )
    error = "The only source is behind a login."
    story.fail("source_unavailable", error, kind="SourceUnavailable")
    store.update_sub_session_ref(POLICY, FRANCE, status="failed")
    return error
