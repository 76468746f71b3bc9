"""A project that uses the package, as type checkers see it. Never run: mypy and pyright read it.

What must be an error has an `ignore` of each checker; one that ignores nothing is an error of its own.
"""
