"""Training within the memory of a GPU: layers computed again, logits in chunks, smaller parts, little padding."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="local models need the local extra")

from mempiler.engines.local import scoring  # noqa: E402
from mempiler.engines.local.batching import SLACK, buckets  # noqa: E402
from mempiler.engines.local.loading import with_lora  # noqa: E402
from mempiler.engines.local.settings import Training  # noqa: E402
from mempiler.engines.local.update import Update, checkpointed, layers  # noqa: E402
from mempiler.errors import UserError  # noqa: E402

PROMPTS = [[3, 7, 8, 9, 5], [3, 6, 5], [6], [3, 10, 11, 12, 13, 14, 15, 5]]
ANSWERS = [[9, 1], [7, 7, 7, 20, 1], [], [8, 1]]


def architecture(kind: str, **changes: Any) -> Any:
    """A transformers model of a few thousand weights whose vocabulary is the widest thing about it."""
    import transformers

    shared = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    shared |= {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "vocab_size": 600}
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
        logits = model(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 :].float() / temperature
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
    assert scoring.is_plain(model) is plain
    expected = plain_path(model, temperature)
    wanted = gradients(model, expected)
    found, mask = scoring.token_logprobs(model, PROMPTS, ANSWERS, temperature, 0, plain=plain, most=3 * 600)
    values = found[mask > 0]
    assert torch.allclose(values, expected, atol=1e-6)
    got = gradients(model, values)
    assert got.keys() == wanted.keys()
    for name, gradient in wanted.items():
        # Sums of single precision in another order; a wrong weight of a token would show in the second digit.
        assert torch.allclose(got[name], gradient, atol=1e-5, rtol=1e-4), name
    assert (found[mask == 0] == 0).all()


def test_no_pass_of_the_head_makes_the_logits_of_all_tokens():
    model, sizes = architecture("Llama"), []
    model.lm_head.register_forward_hook(lambda head, given, made: sizes.append(made.numel()))
    found, _ = scoring.token_logprobs(model, [[3, 4]] * 6, [[5] * 20] * 6, 1.0, 0, plain=True, most=4 * 600)
    found.sum().backward()
    assert max(sizes) == 4 * 600
    assert len(sizes) == 2 * 6 * 20 / 4  # forwards, and again in the backward pass


@pytest.mark.parametrize("lora", [None, {"r": 2}])
def test_layers_computed_again_give_the_same_gradients_with_less_kept(lora):
    model = architecture("Qwen2", num_hidden_layers=4)
    model = adapted(model, lora)
    before = {name: module.__dict__.get("forward") for name, module in model.named_modules()}

    def trained(again: bool) -> tuple[dict[str, Any], int]:
        kept: list[int] = []
        note = torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t.numel()), t)[1], lambda t: t)
        with note, checkpointed(layers(model) if again else []):
            found, mask = scoring.token_logprobs(model, PROMPTS, ANSWERS, 1.0, 0, plain=True)
        held = sum(kept)
        return gradients(model, found[mask > 0]), held

    wanted, much = trained(False)
    got, little = trained(True)
    assert got.keys() == wanted.keys()
    assert all(torch.allclose(got[name], gradient, atol=1e-7) for name, gradient in wanted.items())
    assert little < much / 2
    assert {name: module.__dict__.get("forward") for name, module in model.named_modules()} == before


def test_a_model_without_such_layers_is_told_in_one_line(model):
    model.model.model.layers = torch.nn.ModuleList()
    with pytest.raises(UserError, match="gradient_checkpointing: LlamaForCausalLM has no layers for it; leave it off"):
        Update(model, Training(gradient_checkpointing=True))


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


def step(model: Any, rows: int) -> tuple[dict[str, Any], Update]:
    """The weights after a step on so many rows."""
    batch = [([6 + n], [7 + n, 1]) for n in range(rows)]
    update = Update(model, Training(learning_rate=1e-3, micro_batch_size=rows))
    update.step(batch, [3] * rows, lambda part: -model.token_logprobs(*zip(*part, strict=True))[0].sum())
    return model.state(), update


def test_memory_that_runs_out_halves_the_parts_of_a_batch_and_not_its_gradient(make_model):
    whole, short = make_model(), make_model()
    short.token_logprobs([[6]], [[7]])
    sizes = failing(short, 2)
    (wanted, _), (found, update) = step(whole, 7), step(short, 7)
    assert (update.micro_batch, sizes[0], sizes[-7:]) == (1, 7, [1] * 7)
    for name, weights in wanted.items():
        assert torch.allclose(weights, found[name], atol=2e-5), name
    for one, other in zip(*(each.logprobs(PROMPTS, ANSWERS) for each in (short, whole)), strict=True):
        assert one == pytest.approx(other, abs=1e-3)


def test_memory_that_ends_at_one_row_is_one_line_with_the_fix(make_model):
    model = make_model()
    failing(model, 0)
    told = r"longest of the batch has 3 tokens with its prompt\. Train with gradient_checkpointing = true, an adapter"
    with pytest.raises(UserError, match=told) as error:
        step(model, 4)
    assert "\n" not in str(error.value)
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
        assert padding <= max(text, SLACK)
