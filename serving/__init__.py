"""The HTTP service: memories of many users behind bearer tokens, and an OpenAI-compatible chat that remembers."""
