"""The offline engine: answers without weights, key or network. See `engine` for its limits.

    prompt       what is asked: inputs, demos and outputs; `schemas` has the types of the outputs
    material     the query and what it may be answered from, cut into `units`
    answers      fills each output by its type, with what fits best by `ranking` and `words`
    rendering    writes the answer in the form that the adapter reads

`hashed_vectors` is the offline embedder.
"""
