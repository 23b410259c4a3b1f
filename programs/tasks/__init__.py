"""Tasks: what is done with a recalled context; see `task`."""
