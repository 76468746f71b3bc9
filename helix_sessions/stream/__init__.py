"""How a committed event reaches a waiting reader.

A commit *pokes* the session; a poke carries no data. Readers register with the hub, read the rows after
their cursor, wait for a poke or for a slow poll, and read again. So losing a poke costs a poll interval and
never an event. Between processes the poke travels by PostgreSQL's NOTIFY, sent after the commit.

| module | holds |
|---|---|
| `hub` | the watchers of a process, by session |
| `wakeups` | the poke after a commit |
| `channel` | LISTEN and NOTIFY: pokes and fragments between processes |
| `followers`, `fragment_cursor` | the position of one reader in the log, and in the message under way |
| `tails`, `feeds` | a reader in a thread, and readers on an event loop |
| `readers`, `threads` | the threads that read for event loops, and those that requests give back |
| `fragment_writer` | stores the fragments of messages under way |
| `sse`, `slots` | frames on the wire, and how many streams a user has open |

Nothing here imports the store: the caller passes the function that reads rows.
"""
