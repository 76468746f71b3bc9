"""The benchmark: this app against hand-written SQL and against its peers, as ratios within one run."""
