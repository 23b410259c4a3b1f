"""The local engine: language models that run, and learn, in this process.

    capture     the raw completions of calls, as they were sampled
    model       one transformers model with its tokenizer: encode, sample, log-probabilities, save
    batching    calls of many threads as one batch
    engine      the DSPy engine over both, and the LM
    loss        advantages and the clipped loss of GRPO
    parts       batches in parts: rows of similar length, fewer where memory runs out
    head        log-probabilities from hidden states, a chunk of logits at a time
    update      gradient steps: batches, accumulation, clipping, the optimizer's state
    sft         supervised fine-tuning
    provider    what DSPy's finetune and reinforce call

Nothing here imports torch before a model is loaded; `pip install '.[local]'` brings it.
"""
