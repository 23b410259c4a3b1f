"""Anything that answers questions about a history, as a program like ours: same questions, same reader, same scorers.

    add(session), search(query, k)       searchable.py   a store that is written once per history, our reader answers
    (history, question) -> answer        own.py          a callable or a `dspy.Module`, which optimizers compile
    http://...                           endpoint.py     a chat endpoint with a memory of its own
    answers.jsonl                        recorded.py     answers that were made elsewhere

`things.program_of` tells which one a thing is.
"""
