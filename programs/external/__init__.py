"""Anything that answers questions about a history, as a program like ours: same questions, same reader, same scorers.

    add(session), search(query, k)       stores.py       written once per history; our reader answers, or its own `ask`
    (history, question) -> answer        program.py      a callable, or a `dspy.Module`, which optimizers compile
    http://...                           endpoint.py     a chat endpoint with a memory of its own
    answers.jsonl                        a callable that looks them up (`runs.external`)

`resolve.program_of` tells which one a thing is.
"""
