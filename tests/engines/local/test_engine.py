"""The DSPy engine over a local model: determinism, capture, metering, copies, keys, failures."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import dspy
import pytest

torch = pytest.importorskip("torch", reason="local models need the local extra")

from dspy.utils.exceptions import ContextWindowExceededError  # noqa: E402
from mempiler.engines.call import Call  # noqa: E402
from mempiler.engines.local.engine import LocalEngine, local_lm  # noqa: E402
from mempiler.engines.local.sampling import capture  # noqa: E402
from mempiler.engines.meter import Meter  # noqa: E402
from mempiler.engines.models import keep, language_model  # noqa: E402
from mempiler.engines.prices import token_prices  # noqa: E402
from mempiler.programs.gather import gather  # noqa: E402

QUESTIONS = [f"w{n % 7} w3" for n in range(40)]


def ask(lm, text):
    return lm(text)[0]


def test_answers_do_not_depend_on_how_calls_were_batched(model):
    def answers(threads, window):
        engine = LocalEngine(model, window=window)
        lm = dspy.LM("local/tiny", engine=engine, temperature=1.0, max_tokens=8, cache=False, num_retries=0)
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(lambda n: ask(lm.copy(rollout_id=n, seed=n), QUESTIONS[n]), range(40)))

    assert answers(1, 0.0) == answers(16, 0.02)


def test_a_rollout_id_decides_what_a_metered_lm_samples(model):
    lm = local_lm(model, temperature=1.0, max_tokens=8)
    first = [ask(lm.copy(rollout_id=f"run/{n}"), "w1 w2") for n in range(6)]
    assert first == [ask(lm.copy(rollout_id=f"run/{n}"), "w1 w2") for n in range(6)]
    assert len(set(first)) > 1


def test_a_repeated_prompt_gets_other_answers_and_a_new_engine_repeats_them(model):
    first, second = ([ask(lm, "w1 w2") for _ in range(6)] for lm in [local_lm(model, temperature=1.0) for _ in "ab"])
    assert len(set(first)) > 1
    assert first == second


def test_capture_keeps_every_raw_completion_of_gathered_calls(model):
    lm = local_lm(model, temperature=1.0, max_tokens=8)
    with capture() as samples:
        said = gather([lambda q=q: ask(lm, q) for q in QUESTIONS]) + asyncio.run(lm.acall("w1 w2"))
    assert sorted(sample.text for sample in samples) == sorted(said)
    for sample in samples:
        assert sample.prompt_ids == tuple(model.encode(sample.messages))
        assert len(sample.logprobs) == len(sample.completion_ids)


class Fields(dspy.Signature):
    """Answer."""

    question: str = dspy.InputField()
    answer: int = dspy.OutputField()


def test_malformed_and_empty_completions_are_captured(make_model):
    model = make_model(context=2000)
    with torch.no_grad():
        model.model.lm_head.weight.zero_()  # argmax of equal logits is token 0, the padding: an empty text
    with (
        capture() as samples,
        dspy.context(lm=local_lm(model, max_tokens=4)),
        pytest.raises(dspy.utils.exceptions.AdapterParseError),
    ):
        dspy.Predict(Fields)(question="w1")
    assert [sample.text for sample in samples] == [""] * len(samples)
    assert samples[0].completion_ids == (0, 0, 0, 0)
    assert not samples[0].finished


def test_the_innermost_capture_gets_the_sample_and_none_outside_does(model):
    lm = local_lm(model, max_tokens=2)
    with capture() as outer:
        with capture() as inner:
            ask(lm, "w1")
        assert (len(outer), len(inner)) == (0, 1)
        ask(lm, "w1")
    ask(lm, "w1")
    assert (len(outer), len(inner)) == (1, 1)


def test_calls_and_tokens_are_metered(model):
    meter = Meter()
    lm = local_lm(model, meter, max_tokens=3, role="judge")
    with capture() as samples:
        ask(lm, "w1 w2")
    used = meter.read()
    assert used.calls == {"judge": 1}
    # "user: w1 w2" and "assistant:"
    assert (used.input_tokens, used.output_tokens) == (4, len(samples[0].completion_ids))
    assert token_prices("local:some/model") == (0.0, 0.0)


def test_a_prompt_that_fills_the_context_is_the_error_that_adapters_know(make_model):
    lm = local_lm(make_model(context=16))
    with pytest.raises(ContextWindowExceededError, match="tokens do not fit tiny"):
        ask(lm, " ".join(["w1"] * 20))


def test_new_weights_give_new_keys_and_restored_weights_the_old_ones(model):
    lm = local_lm(model)
    state, before, version = model.state(), Call(lm, "Hi", None, {}).key, model.version
    with torch.no_grad():
        model.model.lm_head.weight[3, 0] += 0.01
    model.updated()
    assert Call(lm, "Hi", None, {}).key != before
    model.load_state(state)
    assert Call(lm, "Hi", None, {}).key == before
    assert model.version == version + 2


def test_a_model_is_named_by_its_folder_and_found_again(model, tmp_path):
    name = keep(local_lm(model), tmp_path / "model")
    loaded = {}
    lm = language_model(name, loaded=loaded)
    assert ask(lm, "w1 w2") == ask(local_lm(model), "w1 w2")
    assert language_model(name, loaded=loaded).engine.model is lm.engine.model
    assert lm.kwargs["temperature"] == 0.0
    assert LocalEngine.load_state(lm.engine.dump_state()).model.fingerprint == model.fingerprint
    assert keep(language_model("openai/gpt-4.1-mini"), tmp_path) == "openai/gpt-4.1-mini"
