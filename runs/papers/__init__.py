"""Papers as data, variants times benchmarks beside printed cells, and the one runner that reproduces them."""
