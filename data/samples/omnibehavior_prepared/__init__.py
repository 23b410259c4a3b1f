"""A sample of a prepared OmniBehavior experiment, our own, made by `data.synthesis.omnibehavior`."""
