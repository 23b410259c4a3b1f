"""Programs around memory systems and agents that are no method of ours; see `program`."""
