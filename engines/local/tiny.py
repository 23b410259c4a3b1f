"""A language model from scratch: a whitespace tokenizer made from examples, and a random Llama of 0.4M weights.

A word has one id everywhere, so that copying it is the same act in a chat, a memory or JSON; what stands between the
values of JSON answers (`", "content": "`) is one token each. The chat template keeps only the first line of a system
message: rules in prose are useless to a model that has read nothing. Without training (`optimizers.demonstrations`) it
answers noise. A width below 128 did not learn the synthetic world.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .loading import check_installed, quiet

Example = tuple[Sequence[Mapping[str, str]], str]
"""Messages and the answer to them."""

PAD, UNKNOWN, END = "<pad>", "<unk>", "<end>"
ROLES = ("<system>", "<user>", "<assistant>")
WIDTH, LAYERS, HEADS, INNER = 128, 2, 4, 320
CONTEXT = 1024
"""Tokens of a prompt and its answer together."""

_SPLIT = r"[()\[\]|,?]|'s$|:$"
"""Marks that are tokens of their own."""
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?')
"""A JSON string; with a colon behind it, it is a key."""
_TEMPLATE = (
    "{% for message in messages %}{{ '<' + message['role'] + '> ' }}"
    "{{ message['content'].split('\\n')[0] if message['role'] == 'system' else message['content'] }}"
    "{% if message['role'] == 'assistant' %} <end>{% endif %} {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def create(folder: str | Path, examples: Sequence[Example], words: Iterable[str] = (), seed: int = 0) -> Path:
    """Writes a tokenizer, of what the examples and words hold, and an untrained model.

    Raises:
        MissingDependencyError: torch or transformers is not installed.
    """
    check_installed()
    tokenizer = make_tokenizer(examples, words)
    model = _model(len(tokenizer), tokenizer, seed)
    with quiet():
        model.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))
    return Path(folder)


def make_tokenizer(examples: Sequence[Example], words: Iterable[str] = ()) -> Any:
    """A transformers tokenizer whose vocabulary is what the examples and `words` hold."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = scaffolding(answer for _, answer in examples)
    splitter = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(_SPLIT), "isolated")]
    )
    found: dict[str, None] = {}
    for text in (*words, *(text for example in examples for text in _texts(example, pieces))):
        found |= dict.fromkeys(word for word, _ in splitter.pre_tokenize_str(text))
    vocabulary = {word: n for n, word in enumerate((PAD, UNKNOWN, END, *ROLES, *sorted(found)))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = splitter
    tokenizer.add_special_tokens([PAD, UNKNOWN, END, *ROLES])
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in pieces])
    spaces = [
        decoders.Replace(Regex(pattern), to)
        for pattern, to in ((r'(?<=[:,\[] ") | (?="[,\]}])', ""), (r'(?<=\[") ', ""))
    ]
    tokenizer.decoder = decoders.Sequence([decoders.WordPiece("##", cleanup=False), decoders.Fuse(), *spaces])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        chat_template=_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )


def scaffolding(answers: Iterable[str]) -> list[str]:
    """The text between the string values of JSON answers, e.g. `[{"op": "` and `"}]`; each piece once, sorted."""
    found = set()
    for answer in answers:
        if answer.startswith(("[", "{")):
            values = [match for match in _STRING.finditer(answer) if match[1] is None]
            starts = [0, *(match.end() - 1 for match in values)]
            ends = [*(match.start() + 1 for match in values), len(answer)]
            found |= {answer[start:end] for start, end in zip(starts, ends, strict=True)}
    return sorted(found)


def _texts(example: Example, pieces: Sequence[str]) -> list[str]:
    """Everything of an example that is to be split into words."""
    messages, answer = example
    shown = [m["content"].split("\n")[0] if m["role"] == "system" else m["content"] for m in messages]
    for piece in sorted(pieces, key=len, reverse=True):
        answer = answer.replace(piece, " ")
    return [*shown, answer]


def _model(size: int, tokenizer: Any, seed: int) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=size,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)
