"""Protocols of chat front ends over the same inbox and log: one file per protocol, `following` for all."""
