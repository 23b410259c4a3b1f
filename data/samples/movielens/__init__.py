"""A sample in MovieLens-1M's form, our own: eight invented users whose tastes have a rule, an hour and a change."""
