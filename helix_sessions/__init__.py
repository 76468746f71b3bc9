"""The durable memory of AI agents, as a Django app."""

__version__ = "0.1.0"
