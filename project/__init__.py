"""The demo project: the app as a user installs it."""
