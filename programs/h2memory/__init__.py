"""H2Memory: a memory of two kinds on two levels, from device logs and dialogues; see `method`."""
