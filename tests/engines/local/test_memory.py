"""Within the memory of a GPU: layers computed again, logits in chunks, smaller passes, batches.

A pass is a forward pass of the model over some rows; a row is a prompt with a completion, both as
token ids. No test needs a GPU: hooks raise the error of a GPU whose memory runs out.
"""

import time
from collections.abc import Callable, Sequence
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

from tests.engines.local.groups import run_out_of_memory_above

PROMPTS = [[3, 7, 8, 9, 5], [3, 6, 5], [6], [3, 10, 11, 12, 13, 14, 15, 5]]
COMPLETIONS = [[9, 1], [7, 7, 7, 20, 1], [], [8, 1]]
VOCABULARY = 600


def make_transformers_model(
    architecture: str, lora: dict[str, Any] | None = None, **changes: Any
) -> Any:
    """Return a transformers model of a few thousand weights, most of them for its vocabulary.

    Args:
        architecture: The begin of its class's name, such as "Llama".
        lora: The settings of an adapter whose weights are not 0; None for no adapter.
        **changes: Changes of its config.
    """
    import transformers

    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "vocab_size": VOCABULARY,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": None,
    }
    torch.manual_seed(0)
    config_class = getattr(transformers, f"{architecture}Config")
    model_class = getattr(transformers, f"{architecture}ForCausalLM")
    model = model_class(config_class(**{**sizes, **changes})).eval()
    if lora is None:
        return model

    adapted_model = with_lora(model, lora)
    for name, parameter in adapted_model.named_parameters():
        if "lora_B" in name:  # peft begins with zeros, which would change nothing
            torch.nn.init.normal_(parameter, std=0.1)
    return adapted_model


def gradients_of(model: Any, logprobs: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the gradients of a weighted sum of log-probabilities, by the name of the weight."""
    model.zero_grad()
    weights = torch.linspace(0.5, 2.0, len(logprobs))
    (logprobs * weights).sum().backward()

    gradients: dict[str, torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            gradients[name] = parameter.grad.clone()
    return gradients


# Logits in chunks.


def logprobs_of_each_row_alone(model: Any, temperature: float) -> torch.Tensor:
    """Return the log-probabilities of all completion tokens, from all logits, without padding."""
    values: list[torch.Tensor] = []
    for prompt, completion in zip(PROMPTS, COMPLETIONS, strict=True):
        ids = torch.tensor([[*prompt, *completion]])
        logits = model(ids).logits[0].float() / temperature
        first_place = len(prompt) - 1  # the logits that predict the first token of the completion
        for number, token in enumerate(completion):
            values.append(logits[first_place + number].log_softmax(-1)[token])
    return torch.stack(values)


def assert_same_logprobs_and_gradients(
    model: Any, logprobs: torch.Tensor, expected_logprobs: torch.Tensor
) -> None:
    """Compare log-probabilities of all completion tokens, and the gradients that they give."""
    assert torch.allclose(logprobs, expected_logprobs, atol=1e-6)

    gradients = gradients_of(model, logprobs)
    expected_gradients = gradients_of(model, expected_logprobs)
    assert gradients.keys() == expected_gradients.keys()
    for name, expected_gradient in expected_gradients.items():
        # The numbers are sums of single precision in another order. If the weight of a token were
        # wrong, the second digit would show it.
        assert torch.allclose(gradients[name], expected_gradient, atol=1e-5, rtol=1e-4), name


def record_logit_counts(lm_head: torch.nn.Module) -> list[int]:
    """Return a list to which a head adds how many logits it computes, each time that it is used."""
    counts: list[int] = []
    lm_head.register_forward_hook(lambda head, inputs, logits: counts.append(logits.numel()))
    return counts


@pytest.mark.parametrize(
    ("architecture", "changes", "lora"),
    [
        pytest.param("Llama", {"tie_word_embeddings": True}, None, id="tied embeddings"),
        pytest.param("Qwen2", {}, {"r": 2, "target_modules": ["lm_head", "q_proj"]}, id="adapter"),
    ],
)
def test_logits_in_chunks_give_the_numbers_and_gradients_of_all_logits_at_once(
    architecture: str, changes: dict[str, Any], lora: dict[str, Any] | None
) -> None:
    """A logit is the score of one word of the vocabulary as the next token.

    All logits of a batch take much memory, so the head computes those of three tokens at a time.
    """
    model = make_transformers_model(architecture, lora, **changes)
    assert scoring.has_plain_logits(model)
    expected_logprobs = logprobs_of_each_row_alone(model, temperature=0.7)
    logits_of_three_tokens = 3 * VOCABULARY
    logit_counts = record_logit_counts(model.get_output_embeddings())

    logprobs, mask = scoring.token_logprobs(
        model,
        PROMPTS,
        COMPLETIONS,
        temperature=0.7,
        pad_id=0,
        max_logits=logits_of_three_tokens,
    )

    assert max(logit_counts) <= logits_of_three_tokens
    assert_same_logprobs_and_gradients(model, logprobs[mask > 0], expected_logprobs)
    assert (logprobs[mask == 0] == 0).all()


def test_a_model_that_changes_its_logits_after_its_head_computes_all_at_once() -> None:
    """Gemma 2 makes large logits smaller after its head, so chunks of the head's would be wrong."""
    model = make_transformers_model("Gemma2", final_logit_softcapping=2.0)
    assert not scoring.has_plain_logits(model)
    expected_logprobs = logprobs_of_each_row_alone(model, temperature=0.7)
    logit_counts = record_logit_counts(model.get_output_embeddings())

    logprobs, mask = scoring.token_logprobs(
        model, PROMPTS, COMPLETIONS, temperature=0.7, pad_id=0, max_logits=None
    )

    assert len(logit_counts) == 1
    assert_same_logprobs_and_gradients(model, logprobs[mask > 0], expected_logprobs)
    assert (logprobs[mask == 0] == 0).all()


# Layers computed again.


class KeptNumbers:
    """Counts the numbers that torch keeps for the backward pass, in a `with` block."""

    def __init__(self) -> None:
        self.count = 0
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._count, lambda tensor: tensor)

    def _count(self, tensor: torch.Tensor) -> torch.Tensor:
        self.count += tensor.numel()
        return tensor

    def __enter__(self) -> "KeptNumbers":
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)


def forward_methods(model: Any) -> dict[str, Any]:
    """Return the `forward` of each module that has its own, instead of that of its class."""
    methods: dict[str, Any] = {}
    for name, module in model.named_modules():
        if "forward" in vars(module):
            methods[name] = vars(module)["forward"]
    return methods


def logprobs_of_completions(model: Any) -> torch.Tensor:
    """Return the log-probabilities of all tokens of `COMPLETIONS`."""
    logprobs, mask = scoring.token_logprobs(
        model, PROMPTS, COMPLETIONS, temperature=1.0, pad_id=0, max_logits=scoring.MAX_LOGITS
    )
    return logprobs[mask > 0]


@pytest.mark.parametrize("lora", [None, {"r": 2}])
def test_layers_that_are_computed_again_give_the_same_gradients_and_keep_less(
    lora: dict[str, Any] | None,
) -> None:
    """Gradients need what each layer gave. Computing it again saves memory, and takes time."""
    model = make_transformers_model("Qwen2", lora, num_hidden_layers=4)
    settings = Training(gradient_checkpointing=True)
    layers = checkpointing_layers(SimpleNamespace(model=model), settings)
    original_methods = forward_methods(model)

    with KeptNumbers() as kept_numbers:
        gradients = gradients_of(model, logprobs_of_completions(model))
    with KeptNumbers() as kept_numbers_of_recomputing, recompute(layers):
        recomputed_gradients = gradients_of(model, logprobs_of_completions(model))

    assert kept_numbers_of_recomputing.count < kept_numbers.count / 2
    assert recomputed_gradients.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(recomputed_gradients[name], gradient, atol=1e-7), name
    # The model is as it was before.
    assert forward_methods(model) == original_methods


def test_a_model_without_layers_to_compute_again_is_refused() -> None:
    model: Any = SimpleNamespace(model=torch.nn.Linear(1, 1))
    message = "gradient_checkpointing: Linear has no layers for it; leave it off"

    with pytest.raises(UserError, match=message):
        checkpointing_layers(model, Training(gradient_checkpointing=True))


# Memory that runs out.


def train_one_step(model: Any, row_count: int) -> LocalWeights:
    """Take a step on so many rows in one pass, and return the object that trained the weights."""
    batch = [Row([6 + number], [7 + number, 1]) for number in range(row_count)]
    weights = LocalWeights(model, Training(micro_batch_size=row_count))

    def loss(part: Sequence[Row], size: Any) -> torch.Tensor:
        return -weights.token_logprobs(part).values.sum()

    take_step(weights, batch, loss, learning_rate=1e-3)
    return weights


def make_first_use(model: Any) -> None:
    """Use a model once: its first use begins with an extra pass, which tries it on one token."""
    model.token_logprobs(prompts=[[6]], completions=[[7]])


def test_memory_that_runs_out_halves_the_rows_of_a_pass_and_changes_no_gradient(
    make_model: Callable[..., Any],
) -> None:
    model = make_model()
    model_with_little_memory = make_model()
    make_first_use(model_with_little_memory)
    row_counts = run_out_of_memory_above(model_with_little_memory, max_rows=2)

    train_one_step(model, row_count=7)
    weights = train_one_step(model_with_little_memory, row_count=7)

    # Memory suffices for two rows, so passes of seven rows and of three fail. Their half, one row,
    # succeeds, seven times.
    assert row_counts == [7, 3, 1, 1, 1, 1, 1, 1, 1]
    assert weights.micro_batch == 1
    expected_state = model.state()
    for name, values in model_with_little_memory.state().items():
        assert torch.allclose(values, expected_state[name], atol=2e-5), name


def test_scoring_is_repeated_with_fewer_rows_if_memory_runs_out(
    make_model: Callable[..., Any],
) -> None:
    expected_logprobs = make_model().logprobs(PROMPTS, COMPLETIONS)
    model_with_little_memory = make_model()
    row_counts = run_out_of_memory_above(model_with_little_memory, max_rows=2)

    logprobs = model_with_little_memory.logprobs(PROMPTS, COMPLETIONS)

    assert max(row_counts) > 2  # a pass with more rows was tried, and failed
    for values, expected_values in zip(logprobs, expected_logprobs, strict=True):
        assert values == pytest.approx(expected_values, abs=1e-3)


def test_memory_that_does_not_suffice_for_one_row_of_a_training_is_a_user_error_with_the_fix(
    make_model: Callable[..., Any],
) -> None:
    model = make_model()
    make_first_use(model)
    run_out_of_memory_above(model, max_rows=0)
    message = (
        r"longest of the batch has 3 tokens with its prompt\. "
        "Train with gradient_checkpointing = true, an adapter"
    )
    with pytest.raises(UserError, match=message):
        train_one_step(model, row_count=4)
    # What the failed step has computed does not take up memory.
    assert all(parameter.grad is None for parameter in model.parameters())


def test_memory_that_does_not_suffice_to_score_one_row_is_a_user_error(
    make_model: Callable[..., Any],
) -> None:
    model = make_model()
    make_first_use(model)
    run_out_of_memory_above(model, max_rows=0)
    with pytest.raises(UserError, match="memory ran out at a single completion"):
        model.logprobs(prompts=[[6], [7]], completions=[[7], [8]])


# Padding.


@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param([40, 9000, 35, 8800], id="short and long"),
        pytest.param(list(range(1, 4000, 37)), id="all lengths"),
        pytest.param([1], id="one"),
    ],
)
def test_padding_takes_at_most_as_much_as_the_text(lengths: list[int]) -> None:
    """Rows of one pass are padded to the longest, so rows of similar length are put together.

    `buckets` takes the number of tokens of each row. For each pass it returns the places of its
    rows in the list.
    """
    max_rows = 8

    parts = buckets(lengths, max_rows)

    all_places = sorted(place for part in parts for place in part)
    assert all_places == list(range(len(lengths)))
    for part in parts:
        lengths_of_part = [lengths[place] for place in part]
        text_tokens = sum(lengths_of_part)
        padding_tokens = max(lengths_of_part) * len(part) - text_tokens
        assert len(part) <= max_rows
        # A little padding is allowed in any case.
        assert padding_tokens <= max(text_tokens, FREE_PADDING)


# Batches of concurrent calls.


def call_in_threads(batcher: Batcher[int, int], rows: Sequence[int], threads: int) -> list[int]:
    """Call a batcher for each row, in so many threads, and return the results in their order."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(batcher.call, rows))


def test_concurrent_calls_share_batches_of_bounded_size_and_get_their_own_results() -> None:
    batches: list[Sequence[int]] = []

    def double(rows: Sequence[int]) -> list[int]:
        batches.append(rows)
        time.sleep(0.01)
        return [2 * row for row in rows]

    batcher = Batcher(double, window=0.2, limit=12)
    results = call_in_threads(batcher, range(64), threads=16)

    assert results == [2 * row for row in range(64)]
    rows_of_batches = sorted(row for batch in batches for row in batch)
    assert rows_of_batches == list(range(64))
    assert max(len(batch) for batch in batches) <= 12
    # Six full batches would be enough; without sharing there would be 64.
    assert len(batches) < 20


@pytest.mark.parametrize("error", [ValueError("no weights"), KeyboardInterrupt("no weights")])
def test_a_failure_reaches_every_call_of_its_batch_and_no_later_one(error: BaseException) -> None:
    """A batcher runs the calls of many threads as one; each thread waits for its own result."""
    is_broken = True

    def return_rows(rows: Sequence[int]) -> Sequence[int]:
        if is_broken:
            raise error
        return rows

    batcher = Batcher(return_rows, window=0.05)
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(batcher.call, row) for row in range(8)]
    for call in calls:
        assert str(call.exception()) == "no weights"

    is_broken = False
    assert batcher.call(7) == 7


class LittleMemory:
    """Returns the rows of a batch, but runs out of memory if there are too many.

    Args:
        max_rows: The most rows for which memory suffices.
    """

    def __init__(self, max_rows: int) -> None:
        self.row_counts: list[int] = []
        self._max_rows = max_rows

    def __call__(self, rows: Sequence[int]) -> Sequence[int]:
        self.row_counts.append(len(rows))
        if len(rows) > self._max_rows:
            raise MemoryError
        return rows


def test_a_batch_that_runs_out_of_memory_is_tried_in_halves() -> None:
    little_memory = LittleMemory(max_rows=2)
    batcher = Batcher(little_memory, window=5, limit=8)

    results = call_in_threads(batcher, range(8), threads=8)

    assert results == list(range(8))
    # All eight rows and each half of four are too many; the quarters of two rows fit.
    assert little_memory.row_counts == [8, 4, 2, 2, 4, 2, 2]


def test_a_batch_of_one_that_runs_out_of_memory_is_a_user_error() -> None:
    batcher = Batcher(LittleMemory(max_rows=0))
    with pytest.raises(UserError, match="memory ran out at a single completion"):
        batcher.call(1)
