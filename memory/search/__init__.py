"""Search in memories: by words, by vectors, by who spoke and when."""
