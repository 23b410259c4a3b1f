"""Our own sample in the form of MemBench's joined files: one per agent."""
