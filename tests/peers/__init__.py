"""The tests of other projects, run against ours. Nothing of them is here, and `make test` runs none of them.

`docs/explanation/peers.md` says how to repeat a run, what was seen, and why a test is left out.
"""
