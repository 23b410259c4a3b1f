"""A model from nothing: its tokenizer, its chat template, and that it is the same each time."""

from pathlib import Path
from typing import Any

import pytest
from mempiler.engines.local.model import LocalModel
from mempiler.engines.local.tiny import create, make_tokenizer
from mempiler.optimizers.demonstrations import demonstrate
from mempiler.programs.compact_adapter import CompactAdapter
from mempiler.programs.memory_r2.method import MemoryR2, MemoryR2Settings

from tests.engines.local.groups import sample


@pytest.fixture(scope="module")
def examples() -> Any:
    return demonstrate(
        MemoryR2(MemoryR2Settings(**MemoryR2.preset("memory-env"))), CompactAdapter(), 12, seed=0
    )


@pytest.fixture(scope="module")
def tokenizer(examples: Any) -> Any:
    return make_tokenizer(examples, ["Zoe", "m99"])


def test_every_answer_survives_the_tokenizer(examples: Any, tokenizer: Any) -> None:
    for _, answer in examples:
        ids = tokenizer(answer, add_special_tokens=False)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert (
            tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            == answer
        )


def test_a_word_has_one_id_and_the_json_around_values_is_one_token_each(tokenizer: Any) -> None:
    def ids(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    [alone] = ids("Ada")
    for text in (
        "[D1:1] Ada: my pet",
        '[{"speaker": "Ada", "turn_id": "D1:1"',
        "(m1 Ada)",
        "Ada's pet?",
    ):
        assert alone in ids(text)
    assert len(ids('[{"op": "DELETE", "memory_id": "m1", "turn_id": "D1:1"}]')) == 7


def test_a_created_model_loads_and_is_the_same_for_the_same_seed(
    examples: Any, tmp_path: Path
) -> None:
    models = [
        LocalModel.load(create(tmp_path / str(n), examples, seed=seed))
        for n, seed in enumerate((1, 1, 2))
    ]
    assert models[0].fingerprint == models[1].fingerprint != models[2].fingerprint
    assert sum(p.numel() for p in models[0].model.parameters()) < 600_000
    prompt = models[0].encode(examples[0][0])
    assert sample(models[0], [prompt], 0.0, 4)[0].completion_ids
