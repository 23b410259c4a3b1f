"""Sampling and scoring: padding changes nothing, seeds decide everything, log-probabilities are the model's own."""

from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="local models need the local extra")

from mempiler.engines.local.sampling import row_seed  # noqa: E402
from mempiler.errors import UserError  # noqa: E402

from tests.engines.local.groups import sample as draw  # noqa: E402

PROMPTS = [[3, 7, 8, 9, 5], [3, 6, 5], [6], [3, 10, 11, 12, 13, 14, 15, 5]]


def logits_after(model, ids):
    with torch.no_grad():
        return model.model(torch.tensor([ids])).logits[0, -1]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_logprobs_of_a_padded_batch_are_those_of_each_row_alone(model, temperature):
    samples = draw(model, PROMPTS, temperature, 12, seed=3)
    scored = model.logprobs([s.prompt_ids for s in samples], [s.completion_ids for s in samples], temperature)
    for sample, row in zip(samples, scored, strict=True):
        before = [[*sample.prompt_ids, *sample.completion_ids[:n]] for n in range(len(sample.completion_ids))]
        logits = [(logits_after(model, ids) / temperature).log_softmax(-1) for ids in before]
        alone = [float(each[token]) for each, token in zip(logits, sample.completion_ids, strict=True)]
        assert sample.logprobs == pytest.approx(alone, abs=1e-5)
        assert row == pytest.approx(alone, abs=1e-5)
    assert model.logprobs([[6, 7], [6]], [[], [8]])[0] == []
    assert model.logprobs([[6]], [[]]) == [[]]


def test_a_row_gets_the_same_alone_and_in_company_whatever_the_limits_of_others(model):
    seeds, limits = [row_seed(5, prompt, 0) for prompt in PROMPTS], [1, 16, 0, 4]
    batch = model.sample(PROMPTS, [1.0] * 4, [16] * 4, seeds)
    mixed = model.sample(PROMPTS, [1.0] * 4, limits, seeds)
    for prompt, sample, cut, limit, seed in zip(PROMPTS, batch, mixed, limits, seeds, strict=True):
        [alone] = model.sample([prompt], [1.0], [16], [seed])
        assert alone.completion_ids == sample.completion_ids
        assert cut.completion_ids == sample.completion_ids[:limit]


def test_tokens_are_drawn_as_often_as_the_model_says_and_at_zero_the_likeliest(model):
    draws, logits = 4000, logits_after(model, PROMPTS[1])
    counts = Counter(sample.completion_ids[0] for sample in draw(model, [PROMPTS[1]] * draws, 1.0, 1, seed=11))
    # Five standard errors of a share at most 1/2.
    for token, share in enumerate(logits.softmax(-1).tolist()):
        assert counts[token] / draws == pytest.approx(share, abs=5 * 0.5 / draws**0.5)
    [cold] = draw(model, [PROMPTS[1]], 0.0, 1)
    assert cold.completion_ids == (int(logits.argmax()),)
    assert cold.logprobs[0] == pytest.approx(float(logits.log_softmax(-1).max()), abs=1e-5)


def test_the_end_token_ends_a_completion_and_belongs_to_it(make_model):
    model = make_model()
    with torch.no_grad():
        model.model.lm_head.weight[1] = 50 * model.model.lm_head.weight[6]
    samples = draw(model, [PROMPTS[0]] * 32, 1.0, 8)
    ended = [sample for sample in samples if sample.finished]
    assert ended
    assert all(s.completion_ids.index(1) == len(s.completion_ids) - 1 and "<eos>" not in s.text for s in ended)
    assert all(len(s.completion_ids) == 8 for s in samples if not s.finished)


def test_a_completion_stops_where_the_context_ends_and_a_prompt_has_to_fit(make_model):
    model = make_model(context=10)
    [sample] = draw(model, [[6] * 7], 1.0, 100, seed=2)
    assert len(sample.completion_ids) <= 3
    for length in (0, 10, 500):
        with pytest.raises(UserError, match=f"a prompt of {length} tokens does not fit tiny, which holds 10"):
            draw(model, [[6] * length])
