"""Now: what goes wrong, grouped by cause, and how the work goes. Each panel is one query by an index."""
