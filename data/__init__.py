"""Benchmarks: examples and official metrics."""
