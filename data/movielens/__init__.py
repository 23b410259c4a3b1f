"""MovieLens-1M: which rating a user gives next."""
