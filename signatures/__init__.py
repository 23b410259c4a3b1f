"""Every prompt of the package, as a `dspy.Signature`; a module holds the prompts of one method.

The docstring of a signature is its instructions. DSPy removes their indentation and nothing else,
so the line breaks belong to the prompt, and lines of instructions may be longer than 100
characters.
"""
