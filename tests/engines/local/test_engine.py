"""The DSPy engine over a local model: determinism, raw completions, metering, copies, keys, failures."""

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import FunctionType, MethodType, ModuleType, SimpleNamespace

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

from tests.engines.local.groups import samples_heard

QUESTIONS = [f"w{n % 7} w3" for n in range(40)]


def ask(lm, text="w1 w2"):
    return lm(text)[0]


def test_answers_do_not_depend_on_how_calls_were_batched(model):
    def answers(threads, window):
        engine = LocalEngine(model, window=window)
        lm = dspy.LM(
            "local/tiny", engine=engine, temperature=1.0, max_tokens=8, cache=False, num_retries=0
        )
        with ThreadPoolExecutor(threads) as pool:
            return list(
                pool.map(lambda n: ask(lm.copy(rollout_id=n, seed=n), QUESTIONS[n]), range(40))
            )

    assert answers(1, 0.0) == answers(16, 0.02)


def test_rollout_ids_or_else_repetitions_decide_what_is_sampled(model):
    lm, again = (local_lm(model, temperature=1.0, max_tokens=8) for _ in range(2))
    by_id, same = ([ask(lm.copy(rollout_id=f"run/{n}")) for n in range(6)] for _ in range(2))
    assert by_id == same
    repeated, anew = ([ask(each) for _ in range(6)] for each in (lm, again))
    assert repeated == anew
    assert min(len(set(by_id)), len(set(repeated))) > 1


def test_every_raw_completion_is_heard_of_with_its_tokens(model):
    lm = local_lm(model, Metering(role="judge"), temperature=1.0, max_tokens=8)
    with samples_heard() as samples:
        said = gather([lambda q=q: ask(lm, q) for q in QUESTIONS]) + asyncio.run(lm.acall("w1 w2"))
    assert sorted(sample.text for sample in samples) == sorted(said)
    prompts = {
        tuple(model.encode([{"role": "user", "content": text}])) for text in [*QUESTIONS, "w1 w2"]
    }
    assert {sample.prompt_ids for sample in samples} == prompts
    assert all(len(sample.logprobs) == len(sample.completion_ids) for sample in samples)
    used, tokens = lm.meter.read(), sum(len(sample.completion_ids) for sample in samples)
    # The words "user: w1 w2" and "assistant:".
    assert used.calls == {"judge": 41}
    assert used.input_tokens == 4 * 41
    assert used.output_tokens == tokens
    assert token_prices("local:some/model") == (0.0, 0.0)


def test_a_prompt_that_fills_the_context_is_the_error_that_adapters_know(make_model):
    lm = local_lm(make_model(context=16))
    with pytest.raises(ContextWindowExceededError, match="tokens do not fit tiny"):
        ask(lm, " ".join(["w1"] * 20))


def test_new_weights_give_new_keys_and_restored_weights_the_old_ones(model):
    lm = local_lm(model)
    state, before = model.state(), Call(lm, "Hi", None, {}).key
    with torch.no_grad():
        model.model.lm_head.weight[3, 0] += 0.01
    model.updated()
    assert Call(lm, "Hi", None, {}).key != before
    model.load_state(state)
    assert Call(lm, "Hi", None, {}).key == before


def token_rows(root):
    """The tuples and lists of numbers that an object holds, however deep; code and classes are not looked into."""
    found, waiting, rows = {id(root)}, [root], []
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple | list) and one and all(isinstance(number, int) for number in one):
            rows.append(tuple(one))
        for value in gc.get_referents(one):
            if id(value) not in found and not isinstance(
                value, ModuleType | FunctionType | MethodType | type
            ):
                found.add(id(value))
                waiting.append(value)
    return rows


SECRET = "w11 w5 w13 w7"
"""What the user says; four words of the model's."""


def holds_secret(model, lm):
    """Whether the tokens of the secret are anywhere in the engine or its model."""
    wanted = str(tuple(model.tokenizer(SECRET)["input_ids"])).strip("()")
    return any(wanted in str(row) for row in token_rows(lm.engine))


def test_forgetting_a_user_leaves_no_token_of_theirs_in_a_local_model(make_model, tmp_path):
    model = make_model(context=4096)
    lm = local_lm(model, temperature=1.0, max_tokens=4)
    with Store(tmp_path / "memories.sqlite") as store:
        memory = build("turn-rag").memory(store, "ada", "acme", lm)
        memory.add([{"role": "user", "content": f"I like {SECRET} ."}])
        with suppress(Exception):  # random weights answer nothing that can be read
            memory.ask("What do I like?")
        assert holds_secret(model, lm)
        memory.forget()
        assert not holds_secret(model, lm)


def test_a_model_that_was_asked_forgets_though_another_one_is_set_now(make_model, tmp_path):
    model = make_model(context=4096)
    lm = local_lm(model, temperature=1.0, max_tokens=4)
    with Store(tmp_path / "memories.sqlite") as store:
        memory = build("turn-rag").memory(store, "ada", "acme")
        memory.add([{"role": "user", "content": f"I like {SECRET} ."}])
        with dspy.context(lm=lm), suppress(Exception):
            memory.ask("What do I like?")
        assert holds_secret(model, lm)
        memory.forget()
        assert not holds_secret(model, lm)


def test_words_that_a_tokenizer_keeps_are_dropped(model):
    cleared = []
    kind = SimpleNamespace(_clear_cache=lambda: cleared.append("words"))
    model.tokenizer = SimpleNamespace(backend_tokenizer=SimpleNamespace(model=kind))
    LocalEngine(model).clear()
    assert cleared == ["words"]


def test_prompts_are_counted_up_to_a_bound_and_none_is_kept():
    counts = PromptCounts(most=2)
    assert [counts.add(prompt) for prompt in ([1, 2], [1, 2], [12], [1, 2])] == [1, 2, 1, 3]
    counts.add([3])
    assert counts.add([12]) == 1
    assert counts.add([1, 2]) == 1
    assert not {(1, 2), (12,), (3,)} & {*token_rows(counts)}
    counts.clear()
    assert counts.add([12]) == 1


def test_a_model_is_named_by_its_folder_and_found_again(model, tmp_path):
    name = save_model(local_lm(model), tmp_path / "model")
    loaded = LoadedModels()
    lm = language_model(name, loaded=loaded)
    assert ask(lm) == ask(local_lm(model))
    assert language_model(name, loaded=loaded).engine.model is lm.engine.model
    assert lm.kwargs["temperature"] == 0.0
    assert LocalEngine.load_state(lm.engine.dump_state()).model.fingerprint == model.fingerprint
    assert save_model(language_model("openai/gpt-4.1-mini"), tmp_path) == "openai/gpt-4.1-mini"
