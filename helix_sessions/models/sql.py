"""The statements of querysets."""

AGENT_TYPES = """
WITH RECURSIVE kinds (agent_type) AS (
    SELECT min(agent_type) FROM helix_sessions_session
    UNION ALL
    SELECT (SELECT min(s.agent_type) FROM helix_sessions_session s WHERE s.agent_type > kinds.agent_type)
    FROM kinds WHERE kinds.agent_type IS NOT NULL
)
SELECT agent_type FROM kinds WHERE agent_type IS NOT NULL LIMIT %s
"""
"""The first kinds of agents by name: each costs one probe of the index, however many sessions there are."""
