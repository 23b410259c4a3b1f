"""A sample in the form of MovieLens-1M, our own: eight invented users and their tastes."""
