"""Mempiler: long-term memory methods for LLM agents as DSPy programs.

Names are imported on first use, so that `import mempiler` is fast and does not import DSPy.

Example:
    >>> import dspy, mempiler
    >>> from mempiler.engines.models import language_model
    >>> said = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]
    >>> history = mempiler.History.from_messages(said, id="ada")
    >>> with dspy.context(lm=language_model("offline")):
    ...     mempiler.build("turn-rag")(history=history, question="Where did Ada move?").answer
    'I moved to Lisbon.'
"""

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
