"""The sentences of the worlds with known answers (`data.worlds`), a file per paper: how each is said, and read again.

A sentence form is a pair of pure functions over a small frozen value, `say(x)` and `read(text)`, with
`read(say(x)) == x`. The worlds say, the oracle engine (`engines.oracle`) reads; neither shares anything else with the
other. No file here knows a user or an answer.
"""
