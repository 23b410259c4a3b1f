"""ImplexConv: questions that hang on something implied."""
