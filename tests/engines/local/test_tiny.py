"""A model from nothing: its tokenizer, its chat template, and that it is the same each time.

`create` makes a small model with random weights, which demonstrations then teach the form of the
answers. Its tokenizer is made for the texts of these demonstrations. They are calls of Memory-R2, a
method whose model answers in JSON, with the changes to be made in a memory.
"""

from pathlib import Path
from typing import Any

import pytest
from mempiler.engines.local.model import LocalModel
from mempiler.engines.local.tiny import create, make_tokenizer
from mempiler.optimizers.demonstrations import demonstrate
from mempiler.programs.compact_adapter import CompactAdapter
from mempiler.programs.memory_r2.method import MemoryR2, MemoryR2Settings

from tests.engines.local.groups import draw


@pytest.fixture(scope="module")
def examples() -> Any:
    """Twelve demonstrations of the method Memory-R2, each of them messages and the right answer."""
    method = MemoryR2(MemoryR2Settings(**MemoryR2.preset("memory-env")))
    return demonstrate(method, CompactAdapter(), 12, seed=0)


@pytest.fixture(scope="module")
def tokenizer(examples: Any) -> Any:
    """A tokenizer made of the examples and of two more words."""
    return make_tokenizer(examples, ["Zoe", "m99"])


def token_ids(tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a text's tokens."""
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def test_every_answer_is_the_same_after_encoding_and_decoding(
    examples: Any, tokenizer: Any
) -> None:
    for _, answer in examples:
        ids = token_ids(tokenizer, answer)
        assert tokenizer.unk_token_id not in ids
        decoded_answer = tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        assert decoded_answer == answer


@pytest.mark.parametrize(
    "text",
    ["[D1:1] Ada: my pet", '[{"speaker": "Ada", "turn_id": "D1:1"', "(m1 Ada)", "Ada's pet?"],
)
def test_a_word_has_the_same_token_wherever_it_stands(tokenizer: Any, text: str) -> None:
    """A model can then copy a word from a line of a chat into the JSON of its answer."""
    (id_of_word_alone,) = token_ids(tokenizer, "Ada")
    assert id_of_word_alone in token_ids(tokenizer, text)


def test_all_the_json_between_two_values_is_one_token(tokenizer: Any) -> None:
    """A model then needs few steps to write an answer."""
    parts = [
        '[{"op": "',
        "DELETE",
        '", "memory_id": "',
        "m1",
        '", "turn_id": "',
        "D1:1",
        '"}]',
    ]
    assert len(token_ids(tokenizer, "".join(parts))) == len(parts)


def test_a_created_model_depends_on_its_seed_alone(examples: Any, tmp_path: Path) -> None:
    first = LocalModel.load(create(tmp_path / "first", examples, seed=1))
    second = LocalModel.load(create(tmp_path / "second", examples, seed=1))
    with_another_seed = LocalModel.load(create(tmp_path / "third", examples, seed=2))
    assert first.fingerprint == second.fingerprint
    assert first.fingerprint != with_another_seed.fingerprint


def test_a_created_model_is_small_and_completes_prompts(examples: Any, tmp_path: Path) -> None:
    model = LocalModel.load(create(tmp_path / "model", examples, seed=1))
    parameter_count = sum(parameter.numel() for parameter in model.model.parameters())
    assert parameter_count < 600_000

    messages, _ = examples[0]
    (sample,) = draw(model, [model.encode(messages)], max_tokens=4)
    assert sample.completion_ids
