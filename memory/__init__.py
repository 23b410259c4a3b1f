"""Memories: their values, their search index, and the store."""
