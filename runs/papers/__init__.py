"""Papers as data, and the runner that reproduces their tables: see `paper`, `reproduction`."""
