"""Language models that run and are trained in this process; see `model`, `engine` and `trainer`.

Nothing here imports torch before a model is loaded. `pip install '.[local]'` installs it.
"""
