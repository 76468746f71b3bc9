"""Who takes part: one file each."""
