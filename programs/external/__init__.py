"""Programs that are no method of ours: callables, modules, stores and endpoints; see `program`."""
