"""Tasks: how a query is answered from a recalled context; see `task`."""
