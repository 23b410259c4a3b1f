"""A sample in MovieLens-1M's form, our own, made by `data.synthesis.movielens`."""
