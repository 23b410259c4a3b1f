"""What is predicted of every switch of a method in its world (`data.worlds`): a table of claims per paper.

One table, three readers: `reproduce NAME --lm oracle` (`recipes.foretold`) prints predicted against found, so does
`perf/worlds.py` for more users and for predictors that say nothing, and `tests/worlds` holds some of it with few users.
"""
