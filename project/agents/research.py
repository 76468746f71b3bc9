"""A research desk: one agent that hands over to two others, side by side in sessions of their own."""

import asyncio

from pydantic_ai import Agent

from helix_sessions.agents import durable
from project.agents.models import model_or
from project.agents.script import Heard, Line


def _desk(heard: Heard) -> Line:
    if not heard.answers:
        question = heard.prompt.rstrip("?.! ")
        return Line(
            "I ask two colleagues at once: one looks at the **market**, one at the **rules**. ",
            [
                ("ask_market", {"prompt": f"How large is the market, and is it growing? {question}."}),
                ("ask_policy", {"prompt": f"Which rules and subsidies apply? {question}."}),
            ],
        )
    findings = {answer.tool: answer.text for answer in heard.answers}
    return Line(
        "## What we found\n\n"
        f"**Market.** {findings.get('ask_market', 'No answer.')}\n\n"
        f"**Rules.** {findings.get('ask_policy', 'No answer.')}\n\n"
        "### My advice\n\n"
        "1. Start with renovation, where demand follows the subsidies.\n"
        "2. Get certified *before* the season; it takes about three months.\n"
        "3. Decide again in spring, when the new rates are known.\n"
    )


def _market(heard: Heard) -> Line:
    if not heard.answers:
        return Line("I read the sales figures. ", [("read_figures", {"topic": "sales by year"})])
    return Line(
        "Sales fell by a fifth after the record year and have been recovering for three quarters. "
        "New buildings hold steady; the swings come from renovation."
    )


def _policy(heard: Heard) -> Line:
    if not heard.answers:
        return Line("I look for the current rules. ", [("read_rules", {"country": "France"})])
    if len(heard.answers) == 1:
        return Line("One paragraph refers to another. ", [("read_rules", {"country": "France", "page": 2})])
    return Line(
        "Grants depend on income and are paid after installation by a certified firm. "
        "Gas boilers are no longer subsidized; a ban in existing buildings is not planned before 2030."
    )


_desk_agent = Agent(
    model_or(_desk),
    name="research-desk",
    instructions="You answer questions about entering a market. Ask `ask_market` and `ask_policy` in one "
    "step, then sum up what both found in a short markdown report.",
)
market = Agent(
    model_or(_market),
    name="market-scout",
    instructions="You know markets. Read the figures first, then answer in two sentences.",
)
policy = Agent(
    model_or(_policy),
    name="policy-scout",
    instructions="You know rules and subsidies. Read the rules first, then answer in two sentences.",
)


@market.tool_plain
async def read_figures(topic: str) -> dict[str, list[int]]:
    """Yearly figures, in thousands of units."""
    await asyncio.sleep(2.2)
    return {"2022": [462], "2023": [480], "2024": [381], "2025": [402]}


@policy.tool_plain
async def read_rules(country: str, page: int = 1) -> str:
    """A page of the rules of a country."""
    await asyncio.sleep(1.8)
    return f"{country}, page {page}: grants by income; certified installers; see also the next page."


desk = durable(_desk_agent, subagents={"ask_market": "market-scout", "ask_policy": "policy-scout"})
