"""A memory as a tool of an agent: two arguments in, plain text out.

Example:
    >>> import mempiler
    >>> from mempiler.engines.models import language_model
    >>> memory = mempiler.build("turn-rag").memory(store="tool.sqlite", user="ada", lm=language_model("offline"))
    >>> memory.add([{"role": "user", "name": "Ada", "content": "I moved to Lisbon.", "time": "2024-03-05"}]).id
    'D1'
    >>> print(mempiler.memory_tool(memory)(query="Where did Ada move?", k=3))
    - (5 March 2024, Tuesday) Ada: I moved to Lisbon.
"""

from __future__ import annotations

import dspy

from ..reading.markers import neutral
from .prompt_text import Memory, found_in, lines

FOUND = 5
"""Entries of a search that does not say how many."""


def memory_tool(memory: Memory, name: str = "search_memory") -> dspy.Tool:
    """Makes the tool `name(query, k)` of a memory, for `dspy.ReAct` and other agents.

    Args:
        memory: Whose it is; the agent's model cannot choose another one's.
        name: What the agent calls it.
    """

    def search_memory(query: str, k: int = FOUND) -> str:
        """Finds what is remembered of earlier conversations with the user that is nearest to the query.

        Args:
            query: What to look for, in words.
            k: How many entries at most.
        """
        return neutral(lines(found_in(memory, query, k)))

    return dspy.Tool(search_memory, name=name)
