"""The demo's summarizer. A real one asks a model; this one notes the beginning of each message."""

from helix_sessions.runtime import SummaryRequest

_CHARACTERS = 80


def brief(request: SummaryRequest) -> str:
    """What was said before, then a line for each message, within the length asked for."""
    lines = [request.previous_summary] if request.previous_summary else []
    for message in request.messages:
        text = " ".join(str(message.get("content", "")).split())
        lines.append(f"{message['role']}: {text[:_CHARACTERS]}")
    return "\n".join(lines)[-4 * request.max_tokens :]
