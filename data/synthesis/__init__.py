"""Benchmarks that a language model writes: one runner, and one file per data set."""
