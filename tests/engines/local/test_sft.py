"""Supervised fine-tuning: it learns completions only, the same way each time, and says what it left out."""

import pytest

torch = pytest.importorskip("torch", reason="local models need the local extra")

from mempiler.engines.local.engine import local_lm  # noqa: E402
from mempiler.engines.local.settings import Finetuning  # noqa: E402
from mempiler.engines.local.sft import fit as fit_with  # noqa: E402
from mempiler.errors import DataError, UserError  # noqa: E402

from tests.engines.local.groups import sample  # noqa: E402


def fit(model, examples, **settings):
    return fit_with(model, examples, Finetuning(**settings))


def chat(asked, answer):
    return [{"role": "user", "content": asked}], answer


EXAMPLES = [chat("w1", "w5 w6"), chat("w2", "w7"), chat("w3 w4", "w8 w9 w10")]


def test_a_model_learns_its_examples(model):
    found = fit(model, EXAMPLES, steps=60, learning_rate=2e-2, batch_size=3)
    assert len(found) == 60
    assert found[-1] < 0.1 < found[0]
    samples = sample(model, [model.encode(messages) for messages, _ in EXAMPLES], 0.0, 8)
    assert [sample.text for sample in samples] == [text for _, text in EXAMPLES]
    assert all(sample.finished for sample in samples)
    assert model.version == 60


def test_the_loss_is_the_mean_over_completion_tokens_and_the_seed_decides_the_order(make_model):
    models = [make_model() for _ in range(3)]
    prompts, completions = zip(
        *[(models[0].encode(m), models[0].encode_completion(c)) for m, c in EXAMPLES], strict=True
    )
    values = [value for row in models[0].logprobs(prompts, completions) for value in row]
    [loss] = fit(make_model(), EXAMPLES, epochs=1, batch_size=3)
    assert loss == pytest.approx(-sum(values) / len(values), abs=1e-5)
    for model, seed in zip(models, (0, 0, 1), strict=True):
        fit(model, EXAMPLES, epochs=2, learning_rate=1e-2, batch_size=1, seed=seed)
    assert models[0].fingerprint == models[1].fingerprint != models[2].fingerprint


def test_the_learning_rate_falls_along_a_cosine(make_model):
    def last_change(cosine):
        models = make_model(), make_model()
        for model, steps in zip(models, (9, 10), strict=True):
            fit(model, EXAMPLES[:1], steps=steps, learning_rate=1e-2, batch_size=1, cosine=cosine)
        one, other = (model.state()["lm_head.weight"] for model in models)
        return float((one - other).abs().max())

    assert 0 < last_change(True) < last_change(False)


def test_examples_beyond_the_context_are_left_out(make_model):
    model = make_model(context=12)
    assert len(fit(model, [*EXAMPLES, chat("w1 " * 20, "w2")], epochs=1, batch_size=1)) == 3
    with pytest.raises(DataError, match="no example fits the 12 tokens"):
        fit(model, [chat("w1 " * 20, "w2")])
    with pytest.raises(DataError, match="no example to learn from"):
        fit(model, [])


ROWS = [{"messages": [*messages, {"role": "assistant", "content": text}]} for messages, text in EXAMPLES]


def test_finetune_gives_an_lm_over_a_trained_copy(model, tmp_path):
    lm = local_lm(model, max_tokens=6)
    before = model.fingerprint
    settings = {"steps": 60, "learning_rate": 2e-2, "output_dir": str(tmp_path / "tuned")}
    tuned = lm.finetune(ROWS, "chat", settings).result()
    assert tuned("w2") == ["w7"]
    assert tuned.model == f"local/{tmp_path / 'tuned'}" != lm.model
    assert tuned.meter is lm.meter
    assert model.fingerprint == before


@pytest.mark.parametrize(
    ("rows", "kind", "settings", "message"),
    [
        (ROWS, "chat", {"lr": 1.0}, "no training setting 'lr'; it has: learning_rate, epochs"),
        (ROWS, "completion", {}, "'completion'; the local engine fine-tunes on chat"),
        ([], "chat", {}, "no example to learn from"),
        ([{"messages": []}], "chat", {}, "is no chat"),
        (ROWS, "chat", {"learning_rate": float("nan")}, "training setting learning_rate = "),
        (ROWS, "chat", {"steps": 0}, "training setting steps = "),
    ],
)
def test_what_cannot_be_learned_is_told(model, rows, kind, settings, message):
    found = local_lm(model).finetune(rows, kind, settings).result()
    assert isinstance(found, UserError)
    assert message in str(found)
