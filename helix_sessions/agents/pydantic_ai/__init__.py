"""pydantic-ai's agents under our loop: one model request is one turn, and our loop executes their tools."""

from helix_sessions.integrations.extras import needed_from

with needed_from("pydantic-ai"):
    from helix_sessions.agents.pydantic_ai.agent import PydanticAgent as PydanticAgent
