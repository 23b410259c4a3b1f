"""Sampling and scoring: padding changes nothing, seeds decide everything, log-probabilities are the model's own."""

from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="local models need the local extra")

from mempiler.engines.local.sampling import row_seed  # noqa: E402
from mempiler.errors import UserError  # noqa: E402

PROMPTS = [[3, 7, 8, 9, 5], [3, 6, 5], [6], [3, 10, 11, 12, 13, 14, 15, 5]]


def plain_logprobs(model, prompt, completion, temperature):
    """Token by token through the bare model, one row, no padding, no cache."""
    found = []
    for n, token in enumerate(completion):
        with torch.no_grad():
            logits = model.model(torch.tensor([[*prompt, *completion[:n]]])).logits[0, -1]
        found.append(float((logits / temperature).log_softmax(-1)[token]))
    return found


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_logprobs_of_a_padded_batch_are_those_of_each_row_alone(model, temperature):
    for sample in model.sample(PROMPTS, temperature, 12, seed=3):
        expected = plain_logprobs(model, sample.prompt_ids, sample.completion_ids, temperature)
        assert sample.logprobs == pytest.approx(expected, abs=1e-5)


def test_scoring_finds_the_logprobs_that_sampling_reported(model):
    samples = model.sample(PROMPTS, 0.7, 12, seed=3)
    scored = model.logprobs([s.prompt_ids for s in samples], [s.completion_ids for s in samples], 0.7)
    for sample, row in zip(samples, scored, strict=True):
        assert row == pytest.approx(sample.logprobs, abs=1e-5)


def test_a_row_gets_the_same_alone_and_in_company(model):
    batch = model.sample(PROMPTS, 1.0, 16, seed=[row_seed(5, prompt, 0) for prompt in PROMPTS])
    for prompt, sample in zip(PROMPTS, batch, strict=True):
        [alone] = model.sample([prompt], 1.0, 16, seed=[row_seed(5, prompt, 0)])
        assert alone.completion_ids == sample.completion_ids


def test_rows_of_different_length_limits_do_not_disturb_one_another(model):
    long = model.sample(PROMPTS, 1.0, 16, seed=1)
    mixed = model.sample(PROMPTS, 1.0, [1, 16, 0, 4], seed=1)
    for limit, one, other in zip([1, 16, 0, 4], mixed, long, strict=True):
        assert one.completion_ids == other.completion_ids[:limit]


def test_the_same_prompt_gets_different_samples_within_a_batch_and_the_same_from_call_to_call(model):
    first = model.sample([PROMPTS[0]] * 4, 1.0, 8, seed=0)
    assert len({sample.completion_ids for sample in first}) > 1
    assert model.sample([PROMPTS[0]] * 4, 1.0, 8, seed=0) == first
    assert model.sample([PROMPTS[0]] * 4, 1.0, 8, seed=1) != first


def test_temperature_zero_takes_the_likeliest_token(model):
    [sample] = model.sample([PROMPTS[0]], 0.0, 1)
    with torch.no_grad():
        logits = model.model(torch.tensor([PROMPTS[0]])).logits[0, -1]
    assert sample.completion_ids == (int(logits.argmax()),)
    assert sample.logprobs[0] == pytest.approx(float(logits.log_softmax(-1).max()), abs=1e-5)


def test_tokens_are_drawn_as_often_as_the_model_says(model):
    draws = 4000
    samples = model.sample([PROMPTS[1]] * draws, 1.0, 1, seed=11)
    with torch.no_grad():
        expected = model.model(torch.tensor([PROMPTS[1]])).logits[0, -1].softmax(-1)
    counts = Counter(sample.completion_ids[0] for sample in samples)
    # Five standard errors of a share at most 1/2.
    for token, share in enumerate(expected.tolist()):
        assert counts[token] / draws == pytest.approx(share, abs=5 * 0.5 / draws**0.5)


def test_the_end_token_ends_a_completion_and_belongs_to_it(make_model):
    model = make_model()
    with torch.no_grad():
        model.model.lm_head.weight[1] = 50 * model.model.lm_head.weight[6]
    samples = model.sample([PROMPTS[0]] * 32, 1.0, 8, seed=0)
    ended = [sample for sample in samples if sample.finished]
    assert ended
    assert all(s.completion_ids[-1] == 1 and 1 not in s.completion_ids[:-1] for s in ended)
    assert all("<eos>" not in s.text and len(s.text.split()) <= len(s.completion_ids) - 1 for s in ended)
    assert all(len(s.completion_ids) == 8 for s in samples if not s.finished)


def test_a_completion_stops_where_the_context_ends(make_model):
    [sample] = make_model(context=10).sample([[6] * 7], 1.0, 100, seed=2)
    assert len(sample.completion_ids) <= 3


@pytest.mark.parametrize("length", [0, 128, 500])
def test_a_prompt_that_does_not_fit_is_refused(model, length):
    with pytest.raises(UserError, match=f"a prompt of {length} tokens does not fit tiny, which holds 128"):
        model.sample([[6] * length])


def test_an_empty_completion_scores_nothing(model):
    assert model.logprobs([[6, 7], [6]], [[], [8]])[0] == []
    assert model.logprobs([[6]], [[]]) == [[]]
