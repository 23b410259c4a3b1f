"""The local engine: language models that run, and learn, in this process; see `model`, `engine` and `provider`.

Nothing here imports torch before a model is loaded; `pip install '.[local]'` brings it.
"""
