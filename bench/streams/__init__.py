"""Live events: how soon, how many, at what price, and whether each arrives once."""
