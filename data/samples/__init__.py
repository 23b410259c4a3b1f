"""Sample data of our own, in the benchmarks' genuine formats."""
