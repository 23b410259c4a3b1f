"""Create a small language model from nothing: a tokenizer of whole words and a random Llama.

The model has 0.4 million random weights. Until it is trained (`optimizers.demonstrations`), it
answers noise. With a width below 128 it did not learn the synthetic world.

A word has the same id everywhere, so that copying it is the same act from a chat, a memory or JSON.
The text between the values of a JSON answer, such as `", "content": "`, is a single token. The chat
template keeps only the first line of a system message: rules in prose are useless to a model that
has read nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .loading import check_installed, quiet

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

Example = tuple[Sequence[Mapping[str, str]], str]
"""The messages of a prompt, and the answer to them."""

PAD = "<pad>"
UNKNOWN = "<unk>"
END = "<end>"
ROLES = ("<system>", "<user>", "<assistant>")
SPECIAL_TOKENS = [PAD, UNKNOWN, END, *ROLES]

WIDTH = 128
INNER_WIDTH = 320
LAYERS = 2
HEADS = 4

CONTEXT = 1024
"""Tokens of a prompt and its answer together."""

_MARKS = r"[()\[\]|,?]|'s$|:$"
"""Marks that are tokens of their own."""

_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(?P<colon>\s*:)?')
"""A JSON string. With a colon behind it, it is a key."""

_SPACES_AROUND_VALUES = (
    r'(?<=[:,\[] ") | (?="[,\]}])',  # after `: "`, `, "` or `[ "`, and before `",`, `"]` or `"}`
    r'(?<=\[") ',  # after `["`
)
"""Spaces that decoding puts between a JSON string and its quotation marks."""

_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<' + message['role'] + '> ' }}"
    "{{ message['content'].split('\\n')[0] if message['role'] == 'system'"
    " else message['content'] }}"
    "{% if message['role'] == 'assistant' %} <end>{% endif %} {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def create(
    folder: str | Path, examples: Sequence[Example], words: Iterable[str] = (), seed: int = 0
) -> Path:
    """Write a tokenizer and an untrained model into a folder, and return the folder.

    Args:
        folder: Where to write.
        examples: Their words are the vocabulary.
        words: Further words of the vocabulary.
        seed: Decides the random weights.

    Raises:
        MissingDependencyError: torch or transformers is not installed.
    """
    check_installed()
    tokenizer = make_tokenizer(examples, words)
    model = _random_model(tokenizer, seed)
    with quiet():
        model.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))
    return Path(folder)


def make_tokenizer(
    examples: Sequence[Example], words: Iterable[str] = ()
) -> PreTrainedTokenizerFast:
    """Return a tokenizer with the words of the examples, and `words`, as its vocabulary."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    word_splitter = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(_MARKS), "isolated")]
    )
    json_pieces = json_around_values(answer for _, answer in examples)

    texts = list(words)
    for messages, answer in examples:
        texts.extend(_texts_in_prompt(messages))
        texts.append(_without_pieces(answer, json_pieces))
    known_words: set[str] = set()
    for text in texts:
        known_words.update(word for word, _ in word_splitter.pre_tokenize_str(text))

    tokens = [*SPECIAL_TOKENS, *sorted(known_words)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = word_splitter
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in json_pieces])

    # WordPiece joins the tokens with spaces. JSON must not have those inside its strings.
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.WordPiece("##", cleanup=False),
            decoders.Fuse(),
            *(decoders.Replace(Regex(spaces), "") for spaces in _SPACES_AROUND_VALUES),
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        chat_template=_CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )


def json_around_values(answers: Iterable[str]) -> list[str]:
    """Return the pieces of JSON that stand before, between and after the string values of answers.

    Each piece becomes one token, so that the model has only the values to write word by word. Of
    the answer `[{"op": "ADD", "text": "Ada"}]` the pieces are

        [{"op": "       ", "text": "       "}]

    They are sorted, without duplicates. Answers that are no JSON are left out.
    """
    pieces: set[str] = set()
    for answer in answers:
        is_json = answer.startswith(("[", "{"))
        if not is_json:
            continue

        # From one string value to the next.
        piece_start = 0
        for match in _JSON_STRING.finditer(answer):
            is_key = match["colon"] is not None
            if is_key:
                continue
            # The quotation marks of a value belong to the pieces around it.
            value_start = match.start() + 1
            value_end = match.end() - 1
            pieces.add(answer[piece_start:value_start])
            piece_start = value_end
        pieces.add(answer[piece_start:])
    return sorted(pieces)


def _texts_in_prompt(messages: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the texts of messages as they stand in a prompt of the tiny model.

    Of a system message that is the first line only: `_CHAT_TEMPLATE` drops the rules in prose below
    it, which are useless to a model that has read nothing.
    """
    texts: list[str] = []
    for message in messages:
        text = message["content"]
        if message["role"] == "system":
            text = text.split("\n")[0]
        texts.append(text)
    return texts


def _without_pieces(answer: str, json_pieces: Sequence[str]) -> str:
    """Return the words of an answer, without the JSON around them."""
    # The longest first: a shorter piece may be part of a longer one.
    for piece in sorted(json_pieces, key=len, reverse=True):
        answer = answer.replace(piece, " ")
    return answer


def _random_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """Return a Llama with random weights; torch's own random state does not change."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    vocabulary = tokenizer.get_vocab()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=INNER_WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=vocabulary[PAD],
        bos_token_id=None,
        eos_token_id=vocabulary[END],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)
