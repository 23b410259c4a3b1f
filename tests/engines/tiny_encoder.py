"""A sentence encoder of two kilobytes, in the place of the real ones.

`data/tiny.onnx` has the inputs and the output of the real encoders. It gives each token the vector
of its word in `WORD_VECTORS`, so that a test can compute by hand what a text's vector must be.
"""

from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"

WORDS = [
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "query",
    "passage",
    "where",
    "does",
    "did",
    "ann",
    "bob",
    "live",
    "lives",
    "in",
    "oslo",
    "lisbon",
    "moved",
    "to",
    "likes",
    "jazz",
    "i",
    "saw",
    "with",
    "friends",
    "when",
    "user",
    ":",
    ".",
    "?",
]
"""The vocabulary; the place of a word is the id of its token."""

CLS_ID = WORDS.index("[CLS]")
SEP_ID = WORDS.index("[SEP]")

WORD_VECTORS = np.random.default_rng(7).normal(0, 1, (len(WORDS), 8)).astype(np.float32)
"""The weights of `data/tiny.onnx`: a vector of eight numbers for each word."""


def tokenizer_json() -> str:
    """Return the tokenizer of the encoder as the text of a `tokenizer.json`."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    ids_by_word = {word: word_id for word_id, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(ids_by_word, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", CLS_ID), ("[SEP]", SEP_ID)]
    )
    # The tokenizer of MiniLM asks for padding, too, which would make every text as long as the
    # longest. The encoder must switch it off.
    tokenizer.enable_padding(length=64)
    return tokenizer.to_str()


def write_encoder(folder: Path) -> None:
    """Write the two files of the encoder, `model.onnx` and `tokenizer.json`, into a folder."""
    (folder / "model.onnx").write_bytes((DATA / "tiny.onnx").read_bytes())
    (folder / "tokenizer.json").write_text(tokenizer_json())
