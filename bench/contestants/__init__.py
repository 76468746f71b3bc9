"""Who takes part: one file each."""

from bench.contestants.base import Contestant
from bench.contestants.by_hand import ByHand, ByHandJsonb
from bench.contestants.google_adk import GoogleAdk
from bench.contestants.langgraph import LangGraph
from bench.contestants.notifying import OursNotifying, OursSilent
from bench.contestants.one_statement import OneStatement
from bench.contestants.openai_agents import OpenAIAgents
from bench.contestants.ours import Ours, OursOnTwo

CORE: tuple[type[Contestant], ...] = (ByHand, OneStatement, Ours)
SHARED: tuple[type[Contestant], ...] = (OursOnTwo,)
NOTIFYING: tuple[type[Contestant], ...] = (OursNotifying, OursSilent)
PEERS: tuple[type[Contestant], ...] = (OpenAIAgents, GoogleAdk, LangGraph)
EVERYONE: tuple[type[Contestant], ...] = (*CORE, *SHARED, *NOTIFYING, ByHandJsonb, *PEERS)
BY_NAME = {kind.name: kind for kind in EVERYONE}


def installed_peers() -> list[type[Contestant]]:
    """The peers that can take part here."""
    return [peer for peer in PEERS if not peer.missing()]
