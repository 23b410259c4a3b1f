"""Endpoints of language models: one event loop in one thread asks them all."""
