"""How a committed event reaches a waiting reader.

A commit *pokes* the session; a poke carries no data. Readers register with the hub, read the rows after
their cursor, wait for a poke or for a slow poll, and read again. So losing a poke costs a poll interval and
never an event. Between processes the poke travels by PostgreSQL's NOTIFY, sent after the commit.

`hub` the watchers of a process · `wakeups` what a commit does · `channel` LISTEN and NOTIFY · `tails` and
`feeds` a reader in a thread and on an event loop · `readers` threads that read for event loops · `sse`
frames.

Nothing here imports the store: the caller passes the function that reads rows.
"""
