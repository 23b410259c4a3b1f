"""Pages to look at: HTML files that hold everything they show, and ask the network for nothing."""
