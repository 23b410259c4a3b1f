"""The engine over a local model: what it samples, counts, keeps and forgets.

A local model runs in this process, from a folder of weights. The fixture `model` is a model of a
few thousand random weights, whose words are w0 to w19. `local_lm(model)` is a language model over
it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import pytest
import torch
from dspy.utils.exceptions import ContextWindowExceededError
from mempiler import Store, build
from mempiler.engines.call import Call
from mempiler.engines.lm import LoadedModels, language_model, save_model
from mempiler.engines.local.engine import LocalEngine, local_lm
from mempiler.engines.local.prompt_counts import PromptCounts
from mempiler.engines.metered_lm import Metering
from mempiler.engines.prices import token_prices
from mempiler.programs.threads import gather

from tests.conftest import values_below
from tests.engines.local.groups import record_samples


def ask(lm: Any, text: str = "w1 w2") -> str:
    """Return the completion of a model."""
    return lm(text)[0]


# Sampling.


def test_answers_do_not_depend_on_how_calls_are_batched(model: Any) -> None:
    """Calls that come at about the same time are sampled in one batch."""
    questions = [f"w{number % 7} w3" for number in range(40)]

    def answers_of_threads(thread_count: int, window: float) -> list[str]:
        """Ask all questions; a batch waits `window` seconds for a further call."""
        lm = dspy.LM(
            "local/tiny",
            engine=LocalEngine(model, window=window),
            temperature=1.0,
            max_tokens=8,
            cache=False,
            num_retries=0,
        )
        with ThreadPoolExecutor(thread_count) as pool:
            calls = [
                pool.submit(ask, lm.copy(rollout_id=number, seed=number), question)
                for number, question in enumerate(questions)
            ]
        return [call.result() for call in calls]

    answers_one_by_one = answers_of_threads(thread_count=1, window=0.0)
    answers_in_batches = answers_of_threads(thread_count=16, window=0.02)
    assert answers_in_batches == answers_one_by_one


def test_a_rollout_id_decides_what_is_sampled(model: Any) -> None:
    """DSPy tells apart several samples for one prompt by a `rollout_id`."""
    lm = local_lm(model, temperature=1.0, max_tokens=8)

    answers = [ask(lm.copy(rollout_id=f"run/{number}")) for number in range(6)]
    answers_to_the_same_ids = [ask(lm.copy(rollout_id=f"run/{number}")) for number in range(6)]

    assert answers == answers_to_the_same_ids
    assert len(set(answers)) > 1


def test_without_rollout_ids_the_number_of_repetitions_decides_what_is_sampled(model: Any) -> None:
    """The second call with a prompt gets another sample than the first, but always the same one."""
    lm = local_lm(model, temperature=1.0, max_tokens=8)
    new_lm = local_lm(model, temperature=1.0, max_tokens=8)

    answers = [ask(lm) for _ in range(6)]
    answers_of_new_lm = [ask(new_lm) for _ in range(6)]

    assert answers == answers_of_new_lm
    assert len(set(answers)) > 1


def test_every_sample_is_reported_with_its_tokens(model: Any) -> None:
    """Whoever trains the model needs them. `record_samples` lists what models report of calls."""
    lm = local_lm(model, temperature=1.0, max_tokens=8)

    with record_samples() as samples:
        answers = gather([partial(ask, lm, "w1 w2"), partial(ask, lm, "w3")])
        answers += asyncio.run(lm.acall("w4"))

    assert sorted(sample.text for sample in samples) == sorted(answers)
    expected_prompts = [
        tuple(model.encode([{"role": "user", "content": question}]))
        for question in ("w1 w2", "w3", "w4")
    ]
    assert sorted(sample.prompt_ids for sample in samples) == sorted(expected_prompts)
    for sample in samples:
        assert len(sample.logprobs) == len(sample.completion_ids)


def test_calls_and_tokens_are_counted_under_the_role_of_the_model(model: Any) -> None:
    """A word is a token here. The prompt for "w1 w2" has four: "user: w1 w2 assistant:"."""
    lm = local_lm(model, Metering(role="judge"), temperature=1.0, max_tokens=8)

    with record_samples() as samples:
        ask(lm, "w1 w2")

    (sample,) = samples
    usage = lm.meter.read()
    assert usage.calls == {"judge": 1}
    assert usage.input_tokens == 4
    assert usage.output_tokens == len(sample.completion_ids)


def test_a_local_model_costs_nothing() -> None:
    """The two prices are those of a token of a prompt, and of an answer."""
    assert token_prices("local:some/model") == (0.0, 0.0)


def test_a_prompt_that_fills_the_context_raises_the_error_that_adapters_know(
    make_model: Callable[..., Any],
) -> None:
    """After most errors an adapter of DSPy tries the prompt in another form.

    It does not do so after this one, since the other form would be too long as well.
    """
    lm = local_lm(make_model(context=16))  # in tokens
    prompt_of_twenty_words = " ".join(["w1"] * 20)
    with pytest.raises(ContextWindowExceededError, match="tokens do not fit tiny"):
        ask(lm, prompt_of_twenty_words)


def key_of_a_call(lm: Any) -> str:
    return Call(lm, prompt="Hi", messages=None, kwargs={}).key


def test_a_call_has_another_key_after_the_weights_have_changed(model: Any) -> None:
    """A run keeps answers by this key, so it never takes those of other weights."""
    lm = local_lm(model)
    original_weights = model.state()
    original_key = key_of_a_call(lm)

    with torch.no_grad():
        model.model.lm_head.weight[3, 0] += 0.01
    model.updated()
    assert key_of_a_call(lm) != original_key

    model.load_state(original_weights)
    assert key_of_a_call(lm) == original_key


# Forgetting.


def token_sequences(root: Any) -> list[tuple[int, ...]]:
    """Return the lists and tuples of integers, such as token ids, that an object holds."""
    sequences: list[tuple[int, ...]] = []
    for value in values_below(root):
        if isinstance(value, tuple | list) and all(isinstance(item, int) for item in value):
            sequences.append(tuple(value))
    return sequences


def holds_words(lm: Any, words: str) -> bool:
    """Tell whether the tokens of some words are anywhere in the engine or the model of an LM."""
    word_ids = tuple(lm.engine.model.tokenizer(words)["input_ids"])
    length = len(word_ids)
    for sequence in token_sequences(lm.engine):
        for start in range(len(sequence) - length + 1):
            if sequence[start : start + length] == word_ids:
                return True
    return False


@pytest.fixture
def forgetful_lm(make_model: Callable[..., Any]) -> Any:
    """A model with a context that is long enough for the prompts of a method."""
    return local_lm(make_model(context=4096), temperature=1.0, max_tokens=4)


def test_forgetting_a_user_leaves_no_token_of_theirs_in_a_local_model(
    forgetful_lm: Any, tmp_path: Path
) -> None:
    """`memory.forget()` deletes all that is kept of a user.

    A model keeps the tokens of recent prompts, so that it need not encode them again.
    """
    with Store(tmp_path / "memories.sqlite") as store:
        memory = build("turn-rag").memory(store, "ada", "acme", forgetful_lm)
        memory.add([{"role": "user", "content": "I like w11 w5 w13 w7 ."}])
        with suppress(Exception):  # random weights answer nothing that can be read
            memory.ask("What do I like?")
        assert holds_words(forgetful_lm, "w11 w5 w13 w7")

        memory.forget()

        assert not holds_words(forgetful_lm, "w11 w5 w13 w7")


def test_forgetting_reaches_a_model_that_was_asked_but_is_not_set_any_more(
    forgetful_lm: Any, tmp_path: Path
) -> None:
    with Store(tmp_path / "memories.sqlite") as store:
        memory = build("turn-rag").memory(store, "ada", "acme")
        memory.add([{"role": "user", "content": "I like w11 w5 w13 w7 ."}])
        # The model is set for this question alone.
        with dspy.context(lm=forgetful_lm), suppress(Exception):
            memory.ask("What do I like?")
        assert holds_words(forgetful_lm, "w11 w5 w13 w7")

        memory.forget()

        assert not holds_words(forgetful_lm, "w11 w5 w13 w7")


def test_clearing_an_engine_drops_the_words_that_its_tokenizer_keeps(model: Any) -> None:
    """A tokenizer of Hugging Face keeps the words of texts in a cache, to encode them faster."""
    cleared_caches: list[str] = []

    class TokenizerModel:
        """Stands for a model of the package tokenizers, with the method that drops its words."""

        def _clear_cache(self) -> None:
            cleared_caches.append("words")

    backend_tokenizer = SimpleNamespace(model=TokenizerModel())
    model.tokenizer = SimpleNamespace(backend_tokenizer=backend_tokenizer)

    LocalEngine(model).clear()

    assert cleared_caches == ["words"]


# The engine counts how often each prompt has come, since that decides what is sampled.


def test_the_count_of_the_prompt_that_came_longest_ago_is_dropped_first() -> None:
    counts = PromptCounts(most=2)
    counts.add([12])
    counts.add([1, 2])
    counts.add([3])  # the third prompt: [12] is dropped
    assert counts.add([12]) == 1  # and takes the place of [1, 2]
    assert counts.add([3]) == 2
    assert counts.add([1, 2]) == 1


def test_counts_of_prompts_hold_no_prompt() -> None:
    """A prompt is counted under its digest, so what a user has said cannot be found here."""
    counts = PromptCounts()
    counts.add([1, 2])
    counts.add([12])
    sequences = token_sequences(counts)
    assert (1, 2) not in sequences
    assert (12,) not in sequences


def test_cleared_counts_of_prompts_begin_anew() -> None:
    counts = PromptCounts()
    counts.add([12])
    counts.clear()
    assert counts.add([12]) == 1


# Names and saved models.


def test_a_saved_model_is_named_by_its_folder_and_loaded_once(model: Any, tmp_path: Path) -> None:
    name = save_model(local_lm(model), tmp_path / "model")
    loaded = LoadedModels()

    lm = language_model(name, loaded=loaded)

    assert ask(lm) == ask(local_lm(model))
    assert lm.kwargs["temperature"] == 0.0
    assert language_model(name, loaded=loaded).engine.model is lm.engine.model


def test_an_engine_loads_the_same_model_from_its_state(model: Any, tmp_path: Path) -> None:
    """The state is what a saved program holds of an engine: the name of its model, and a seed."""
    name = save_model(local_lm(model), tmp_path / "model")
    state = language_model(name).engine.dump_state()
    assert LocalEngine.load_state(state).model.fingerprint == model.fingerprint


def test_a_model_behind_an_endpoint_is_not_saved_but_named(tmp_path: Path) -> None:
    """`save_model` returns the name by which `language_model` finds the model again."""
    lm = language_model("openai/gpt-4.1-mini")
    assert save_model(lm, tmp_path) == "openai/gpt-4.1-mini"
