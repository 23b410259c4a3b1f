"""A sample in OmniBehavior's raw form, our own, made by `data.synthesis.omnibehavior`."""
