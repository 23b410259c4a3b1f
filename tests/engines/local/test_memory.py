"""Within the memory of a GPU: layers computed again, logits in chunks, smaller parts, little padding; batches."""

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mempiler.engines.local import scoring
from mempiler.engines.local.batching import FREE_PADDING, Batcher, buckets
from mempiler.engines.local.loading import with_lora
from mempiler.engines.local.rows import Row
from mempiler.engines.local.settings import Training
from mempiler.engines.local.update import LocalWeights, checkpointing_layers, recompute, take_step
from mempiler.errors import UserError

PROMPTS = [[3, 7, 8, 9, 5], [3, 6, 5], [6], [3, 10, 11, 12, 13, 14, 15, 5]]
ANSWERS = [[9, 1], [7, 7, 7, 20, 1], [], [8, 1]]


def architecture(kind: str, **changes: Any) -> Any:
    """A transformers model of a few thousand weights whose vocabulary is the widest thing about it."""
    import transformers

    shared = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    shared |= {
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "vocab_size": 600,
    }
    shared |= {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**shared, **changes})
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


def adapted(model: Any, lora: Any) -> Any:
    """The model with an adapter that is not all zeros."""
    if lora is None:
        return model
    model = with_lora(model, lora)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def plain_path(model: Any, temperature: float) -> Any:
    """Log-probabilities from all logits at once, row by row, without padding."""
    rows = []
    for prompt, answer in zip(PROMPTS, ANSWERS, strict=True):
        logits = (
            model(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 :].float()
            / temperature
        )
        rows += [logits[n].log_softmax(-1)[token] for n, token in enumerate(answer)]
    return torch.stack(rows)


def gradients(model: Any, found: Any) -> dict[str, Any]:
    model.zero_grad()
    weights = torch.linspace(0.5, 2.0, len(found))
    (found * weights).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("kind", "changes", "lora", "plain"),
    [
        ("Llama", {"tie_word_embeddings": True}, None, True),
        ("Qwen2", {}, {"r": 2, "target_modules": ["lm_head", "q_proj"]}, True),
        ("Gemma2", {"final_logit_softcapping": 2.0}, None, False),
    ],
)
def test_chunks_of_logits_give_the_numbers_and_gradients_of_all_at_once(kind, changes, lora, plain):
    temperature = 0.7
    model = architecture(kind, **changes)
    model = adapted(model, lora)
    assert scoring.has_plain_logits(model) is plain
    expected = plain_path(model, temperature)
    wanted = gradients(model, expected)
    head, sizes = getattr(model, "get_base_model", lambda: model)().lm_head, list[int]()
    hook = head.register_forward_hook(lambda head, given, made: sizes.append(made.numel()))
    limit = 3 * 600 if plain else None
    found, mask = scoring.token_logprobs(model, PROMPTS, ANSWERS, temperature, 0, max_logits=limit)
    hook.remove()
    assert (max(sizes) <= 3 * 600) is plain
    values = found[mask > 0]
    assert torch.allclose(values, expected, atol=1e-6)
    got = gradients(model, values)
    assert got.keys() == wanted.keys()
    for name, gradient in wanted.items():
        # Sums of single precision in another order; a wrong weight of a token would show in the second digit.
        assert torch.allclose(got[name], gradient, atol=1e-5, rtol=1e-4), name
    assert (found[mask == 0] == 0).all()


@pytest.mark.parametrize("lora", [None, {"r": 2}])
def test_layers_computed_again_give_the_same_gradients_with_less_kept(lora):
    model = adapted(architecture("Qwen2", num_hidden_layers=4), lora)
    again = Training(gradient_checkpointing=True)
    layers = checkpointing_layers(SimpleNamespace(model=model), again)
    before = {name: module.__dict__.get("forward") for name, module in model.named_modules()}

    def trained(recomputed: Any) -> tuple[dict[str, Any], int]:
        kept: list[int] = []
        note = torch.autograd.graph.saved_tensors_hooks(
            lambda t: (kept.append(t.numel()), t)[1], lambda t: t
        )
        with note, recompute(recomputed):
            found, mask = scoring.token_logprobs(
                model, PROMPTS, ANSWERS, 1.0, 0, max_logits=scoring.MAX_LOGITS
            )
        held = sum(kept)
        return gradients(model, found[mask > 0]), held

    with pytest.raises(
        UserError, match="gradient_checkpointing: Linear has no layers for it; leave it off"
    ):
        checkpointing_layers(SimpleNamespace(model=torch.nn.Linear(1, 1)), again)
    wanted, much = trained([])
    got, little = trained(layers)
    assert got.keys() == wanted.keys()
    assert all(torch.allclose(got[name], gradient, atol=1e-7) for name, gradient in wanted.items())
    assert little < much / 2
    assert {
        name: module.__dict__.get("forward") for name, module in model.named_modules()
    } == before


def failing(model: Any, rows: int) -> list[int]:
    """Makes a model run out of memory above so many rows; the sizes of its passes are noted."""
    sizes: list[int] = []
    forward = model.model.base_model.forward

    def stub(*args: Any, **kwargs: Any) -> Any:
        sizes.append(len(kwargs["input_ids"]))
        if sizes[-1] > rows:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(*args, **kwargs)

    model.model.base_model.forward = stub
    return sizes


def step(model: Any, rows: int) -> tuple[dict[str, Any], LocalWeights]:
    """The weights after a step on so many rows, and the object that they were trained by."""
    batch = [Row([6 + n], [7 + n, 1]) for n in range(rows)]
    weights = LocalWeights(model, Training(micro_batch_size=rows))
    take_step(weights, batch, lambda part, size: -weights.token_logprobs(part).values.sum(), 1e-3)
    return model.state(), weights


def test_memory_that_runs_out_halves_the_parts_of_a_batch_and_not_its_gradient(make_model):
    whole, short = make_model(), make_model()
    short.token_logprobs([[6]], [[7]])
    sizes = failing(short, 2)
    (wanted, _), (found, weights) = step(whole, 7), step(short, 7)
    assert weights.micro_batch == 1
    assert sizes[0] == 7
    assert sizes[-7:] == [1] * 7
    for name, expected in wanted.items():
        assert torch.allclose(expected, found[name], atol=2e-5), name
    for one, other in zip(
        *(each.logprobs(PROMPTS, ANSWERS) for each in (short, whole)), strict=True
    ):
        assert one == pytest.approx(other, abs=1e-3)


def test_memory_that_ends_at_one_row_is_one_line_with_the_fix(make_model):
    model = make_model()
    failing(model, 0)
    told = r"longest of the batch has 3 tokens with its prompt\. Train with gradient_checkpointing = true, an adapter"
    with pytest.raises(UserError, match=told):
        step(model, 4)
    assert all(parameter.grad is None for parameter in model.parameters())
    with pytest.raises(UserError, match="memory ran out at a single completion"):
        model.logprobs([[6], [7]], [[7], [8]])


@pytest.mark.parametrize("lengths", [[40, 9000, 35, 8800], list(range(1, 4000, 37)), [1]])
def test_padding_of_a_part_is_bounded(lengths):
    parts = buckets(lengths, 8)
    assert sorted(row for part in parts for row in part) == list(range(len(lengths)))
    for part in parts:
        text = sum(lengths[row] for row in part)
        padding = max(lengths[row] for row in part) * len(part) - text
        assert len(part) <= 8
        assert padding <= max(text, FREE_PADDING)


def together(batcher, rows, threads=16):
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(batcher.call, rows))


def test_concurrent_calls_share_batches_of_bounded_size_and_get_their_own_results():
    batches = []

    def run(rows):
        batches.append(rows)
        time.sleep(0.01)
        return [2 * row for row in rows]

    assert together(Batcher(run, window=0.2, limit=12), range(64)) == [2 * row for row in range(64)]
    assert sorted(row for batch in batches for row in batch) == list(range(64))
    assert len(batches) < 20
    assert max(map(len, batches)) <= 12


@pytest.mark.parametrize("error", [ValueError("no weights"), KeyboardInterrupt("no weights")])
def test_a_failure_reaches_every_call_of_its_batch_and_no_later_one(error):
    broken = [True]

    def run(rows):
        if broken:
            raise error
        return rows

    batcher = Batcher(run, window=0.05)
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(batcher.call, row) for row in range(8)]
    assert {str(call.exception()) for call in calls} == {"no weights"}
    broken.clear()
    assert batcher.call(7) == 7


def test_a_batch_that_runs_out_of_memory_is_tried_in_halves():
    sizes = []

    def run(rows, most=2):
        sizes.append(len(rows))
        if len(rows) > most:
            raise MemoryError
        return rows

    assert together(Batcher(run, window=5, limit=8), range(8), threads=8) == list(range(8))
    assert sizes == [8, 4, 2, 2, 4, 2, 2]
    with pytest.raises(UserError, match="memory ran out at a single completion"):
        Batcher(lambda rows: run(rows, most=0)).call(1)
