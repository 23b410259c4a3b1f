"""MemoryQuest: requests that need things said long ago."""
