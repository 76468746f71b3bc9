"""Plugins of pytest, each loaded inside the suite of another project. They import nothing of our tests,
because that suite has a package of the same name."""
