"""Agent frameworks that keep their memory here: one module each, each with an extra of its name.

Nothing else of the app imports these modules, and importing this package imports none of them.
"""
