"""Turn the answer of a language model into typed values.

The form of an answer may be wrong: it is repaired, and every repair is counted. Its content is
never made up: what is missing stays missing, unless the field declares a default.

Example:
    >>> import dspy
    >>> from mempiler.reading.answer import read_answer
    >>> class ListFacts(dspy.Signature):
    ...     dialogue: str = dspy.InputField()
    ...     facts: list[str] = dspy.OutputField()
    >>> answer = read_answer(ListFacts, 'Sure: {"facts": ["Ann runs", 7]}')
    >>> answer.outputs
    {'facts': ['Ann runs', '7']}
    >>> answer.repairs
    [Repair(kind='layout', path=''), Repair(kind='cast', path='facts[1]')]

An answer is read in three steps:

    layouts.find_sections       completion -> the text of every output
    json_text.LooseJsonParser   text -> JSON value
    values.ValueReader          JSON value -> value of the type that the signature declares
"""
