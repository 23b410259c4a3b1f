"""Memory-R2: facts and the learned operations on them; see `method`."""
