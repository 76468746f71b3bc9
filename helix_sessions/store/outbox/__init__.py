"""Webhooks: which there are, what is to be sent to them, and the sending."""
