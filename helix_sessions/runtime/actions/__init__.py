"""What can be done to a session in one sentence; one file for each kind."""
