"""Memories of many users in production: from Python, over HTTP, and for agents."""
