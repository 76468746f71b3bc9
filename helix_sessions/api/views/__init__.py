"""The resources: one file for each noun of the store."""
