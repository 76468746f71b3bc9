"""Tool calls in transcripts, for code outside of this package: which are open, and what closes them."""

from helix_sessions.messages.tool_ledger import (
    FINISH_TOOLS,
    INTERRUPTED,
    ToolCall,
    calls_in,
    heal,
    open_tool_calls,
    results_in,
)

__all__ = [
    "FINISH_TOOLS",
    "INTERRUPTED",
    "ToolCall",
    "calls_in",
    "heal",
    "open_tool_calls",
    "results_in",
]
