"""Endpoints of language models: one event loop in one thread asks them all."""

TIMEOUT = 120.0
"""Seconds without a byte from the server after which a call has failed."""
RETRIES = 2
"""Retries of a call that could not reach its model, after 1 and 2 seconds or as the server asks."""
DEADLINE = 600.0
"""Seconds for a call, its retries and waits included."""
