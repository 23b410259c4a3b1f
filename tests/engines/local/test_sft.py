"""Supervised fine-tuning: what a model learns, and `compile --optimizer finetune`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import pytest
import torch
from mempiler import DataError, UserError, build
from mempiler.data.catalog import benchmark
from mempiler.engines.local.engine import local_lm
from mempiler.engines.local.model import LocalModel
from mempiler.engines.local.settings import Finetuning
from mempiler.engines.local.sft import fit
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.optimizers.compile import CompileConfig
from mempiler.runs.compile import KeepOptions, run_compile
from mempiler.runs.manifest import read_manifest

from tests.engines.local.groups import draw

from ...command_line import RunCommand
from ...run_inputs import run_inputs

Example = tuple[list[dict[str, str]], str]
"""The messages of a prompt, and the completion that is learned."""


def example(question: str, answer: str) -> Example:
    return [{"role": "user", "content": question}], answer


EXAMPLES = [example("w1", "w5 w6"), example("w2", "w7"), example("w3 w4", "w8 w9 w10")]


def fit_with(model: Any, examples: list[Example], **settings: Any) -> list[float]:
    """Fine-tune a model, and return the loss of each step."""
    return fit(model, examples, Finetuning(**settings))


# What is learned.


def test_a_model_learns_its_examples(model: Any) -> None:
    """Asked for the likeliest tokens, the model answers what it has learned, and then ends."""
    examples = [example("w1", "w5 w6"), example("w2", "w7"), example("w3 w4", "w8 w9 w10")]

    fit_with(model, examples, steps=60, learning_rate=2e-2, batch_size=3)

    prompts = [model.encode(messages) for messages, _ in examples]
    samples = draw(model, prompts, temperature=0.0, max_tokens=8)
    assert [sample.text for sample in samples] == ["w5 w6", "w7", "w8 w9 w10"]
    assert all(sample.finished for sample in samples)


def test_the_loss_falls_from_step_to_step(model: Any) -> None:
    examples = [example("w1", "w5 w6"), example("w2", "w7")]

    losses = fit_with(model, examples, steps=30, learning_rate=2e-2, batch_size=2)

    assert len(losses) == 30  # one of each step
    assert losses[-1] < 0.1 < losses[0]
    assert model.version == 30  # counts the steps


def test_the_loss_is_a_mean_over_the_tokens_of_completions(make_model: Callable[..., Any]) -> None:
    model = make_model()
    prompts = [model.encode(messages) for messages, _ in EXAMPLES]
    completions = [model.encode_completion(answer) for _, answer in EXAMPLES]
    logprobs: list[float] = []
    for row in model.logprobs(prompts, completions):
        logprobs.extend(row)

    (loss,) = fit_with(make_model(), EXAMPLES, epochs=1, batch_size=3)

    assert loss == pytest.approx(-sum(logprobs) / len(logprobs), abs=1e-5)


def test_the_seed_decides_the_order_of_the_examples(make_model: Callable[..., Any]) -> None:
    def fingerprint_after_training(seed: int) -> str:
        model = make_model()
        fit_with(model, EXAMPLES, epochs=2, learning_rate=1e-2, batch_size=1, seed=seed)
        return model.fingerprint

    assert fingerprint_after_training(seed=0) == fingerprint_after_training(seed=0)
    assert fingerprint_after_training(seed=0) != fingerprint_after_training(seed=1)


def test_the_learning_rate_falls_along_a_cosine(make_model: Callable[..., Any]) -> None:
    """The last of ten steps changes the weights less than it does with a constant rate."""
    examples = [example("w1", "w5 w6")]

    def weights_after(steps: int, cosine: bool) -> torch.Tensor:
        model = make_model()
        fit_with(model, examples, steps=steps, learning_rate=1e-2, batch_size=1, cosine=cosine)
        return model.state()["lm_head.weight"]

    def change_of_last_step(cosine: bool) -> float:
        """Return how much a training of ten steps differs from one of nine, at most."""
        change = weights_after(steps=10, cosine=cosine) - weights_after(steps=9, cosine=cosine)
        return float(change.abs().max())

    assert 0 < change_of_last_step(cosine=True) < change_of_last_step(cosine=False)


def test_an_example_that_does_not_fit_the_context_is_left_out(
    make_model: Callable[..., Any],
) -> None:
    model = make_model(context=12)  # in tokens
    short_examples = [example("w1", "w5 w6"), example("w2", "w7")]
    long_example = example("w1 " * 20, "w2")

    losses = fit_with(model, [*short_examples, long_example], epochs=1, batch_size=1)

    assert len(losses) == 2  # one for each example that was learned


def test_examples_of_which_none_fits_the_context_are_refused(
    make_model: Callable[..., Any],
) -> None:
    long_example = example("w1 " * 20, "w2")
    with pytest.raises(DataError, match="no example fits the 12 tokens"):
        fit_with(make_model(context=12), [long_example])


# By DSPy's protocol.

CHATS = [
    {
        "messages": [
            {"role": "user", "content": "w2"},
            {"role": "assistant", "content": "w7"},
        ]
    }
]


def test_finetune_gives_a_model_over_a_trained_copy(model: Any, tmp_path: Path) -> None:
    """`finetune` is DSPy's method of a model; its job gives a new model, and leaves the old one.

    In the only chat of `CHATS`, the user says "w2", and the assistant answers "w7".
    """
    lm = local_lm(model, max_tokens=6)
    fingerprint = model.fingerprint
    settings = {"steps": 60, "learning_rate": 2e-2, "output_dir": str(tmp_path / "tuned")}

    tuned_lm = lm.finetune(CHATS, "chat", settings).result()

    assert tuned_lm("w2") == ["w7"]
    assert tuned_lm.model == f"local/{tmp_path / 'tuned'}"
    assert tuned_lm.model != lm.model
    assert tuned_lm.meter is lm.meter
    assert model.fingerprint == fingerprint


# A job of DSPy does not raise an error, but gives it as its result.


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": 1.0}, "no training setting 'lr'; it has: learning_rate, epochs"),
        ({"learning_rate": float("nan")}, "training setting learning_rate = "),
        ({"steps": 0}, "training setting steps = "),
    ],
)
def test_the_result_of_a_fine_tuning_with_a_wrong_setting_is_a_user_error(
    model: Any, settings: dict[str, Any], message: str
) -> None:
    result = local_lm(model).finetune(CHATS, "chat", settings).result()

    assert isinstance(result, UserError)
    assert message in str(result)


@pytest.mark.parametrize(
    ("chats", "message"),
    [
        pytest.param([], "no example to learn from", id="no chat"),
        pytest.param([{"messages": []}], "is no chat", id="a chat without messages"),
    ],
)
def test_the_result_of_a_fine_tuning_without_an_example_is_a_user_error(
    model: Any, chats: list[dict[str, Any]], message: str
) -> None:
    result = local_lm(model).finetune(chats, "chat", {}).result()

    assert isinstance(result, UserError)
    assert message in str(result)


def test_the_result_of_a_fine_tuning_on_another_format_is_a_user_error(model: Any) -> None:
    result = local_lm(model).finetune(CHATS, "completion", {}).result()

    assert isinstance(result, UserError)
    assert "'completion'; the local engine fine-tunes on chat" in str(result)


# By `compile --optimizer finetune`: a model that answers all questions with "Oslo in Norway", which
# is half right, learns from a benchmark whose answers are all "Oslo".

USERS = ("Ann", "Bob", "Cid", "Dan", "Eve", "Fay", "Gil", "Hal")
COMPLETION = "[[ ## answer ## ]]\nOslo in Norway\n\n[[ ## completed ## ]]"


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A benchmark: a file of questions that all have the answer "Oslo"."""
    lines: list[str] = []
    for name in USERS:
        row = {
            "user": name,
            "messages": [{"role": "user", "content": f"I am {name}, I live in Oslo."}],
            "question": f"Where does {name} live?",
            "answer": "Oslo",
        }
        lines.append(json.dumps(row) + "\n")
    path = tmp_path_factory.mktemp("data") / "questions.jsonl"
    path.write_text("".join(lines))
    return path


class PromptRecorder(OfflineEngine):
    """An engine that gives the same completion to all prompts, and keeps their messages."""

    supports_response_schema = False

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[list[dict[str, Any]]] = []

    def reply(self, request: Any) -> str:
        messages = [{"role": "system", "content": request.system}]
        for message in request.messages:
            messages.append({"role": message.role, "content": message.text})
        self.prompts.append(messages)
        return COMPLETION


def record_prompts(questions: Path) -> list[list[dict[str, Any]]]:
    """Answer the questions of a benchmark by a program, and return the messages of its prompts."""
    engine = PromptRecorder()
    lm = dspy.LM("test/recorder", engine=engine, cache=False)
    program = build("turn-rag")
    with dspy.context(lm=lm, trace=None, disable_history=True):
        for example_of_benchmark in benchmark("jsonl", questions).examples:
            program(**example_of_benchmark.inputs())
    return engine.prompts


def make_byte_tokenizer(texts: list[str]) -> Any:
    """Return a tokenizer that can encode any text, trained on these texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<pad>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # A completion of three tokens is learned in a few steps.
    tokenizer.add_tokens(
        [
            "[[ ## answer ## ]]\n",
            "Oslo in Norway",
            "Oslo",
            "\n\n[[ ## completed ## ]]",
        ]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")


@pytest.fixture(scope="module")
def model_folder(questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that answers every prompt of the benchmark with "Oslo in Norway"."""
    from transformers import LlamaConfig, LlamaForCausalLM

    prompts = record_prompts(questions)
    texts = [message["content"] for messages in prompts for message in messages]
    tokenizer = make_byte_tokenizer(texts)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=2048,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    model = LocalModel(LlamaForCausalLM(config), tokenizer)
    examples = [(messages, COMPLETION) for messages in prompts]
    fit_with(model, examples, steps=30, learning_rate=2e-2, batch_size=3)

    encoded_prompts = [model.encode(messages) for messages in prompts]
    samples = draw(model, encoded_prompts, temperature=0.0, max_tokens=40)
    assert {sample.text for sample in samples} == {COMPLETION}
    return model.save(tmp_path_factory.mktemp("models") / "start")


@pytest.fixture(scope="module")
def first_fingerprint(model_folder: Path) -> str:
    """The fingerprint of the model in `model_folder`, before any training."""
    return LocalModel.load(model_folder).fingerprint


def inputs_of_run(questions: Path, model_folder: Path) -> Any:
    """Return the inputs of a run over the benchmark with this model."""
    return run_inputs(
        "jsonl",
        data=str(questions),
        lm=f"local:{model_folder}",
        train=3,
        dev=2,
        test=2,
        threads=2,
    )


@pytest.fixture
def inputs(questions: Path, model_folder: Path) -> Any:
    return inputs_of_run(questions, model_folder)


class FineTuning(NamedTuple):
    """A compilation by fine-tuning, and where it saved its program."""

    outcome: Any
    program: Path


@pytest.fixture(scope="module")
def fine_tuning(
    questions: Path, model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> FineTuning:
    """A program that was compiled by fine-tuning its model, which was in `model_folder`."""
    program = tmp_path_factory.mktemp("fine-tuning") / "program"
    settings = {"learning_rate": 1e-3, "epochs": 2, "batch_size": 2}
    outcome = run_compile(
        "turn-rag",
        inputs_of_run(questions, model_folder),
        CompileConfig("finetune", settings=settings),
        KeepOptions(program, force=True),
    )
    return FineTuning(outcome, program)


def test_compile_trains_a_copy_of_the_model_in_the_folder_of_the_run(
    first_fingerprint: str, fine_tuning: FineTuning, model_folder: Path
) -> None:
    """A fingerprint names the weights of a model."""
    outcome = fine_tuning.outcome
    trained_model_folder = outcome.run / "model"

    assert outcome.model == f"local:{trained_model_folder}"
    assert outcome.to_dict()["model"] == outcome.model
    assert LocalModel.load(trained_model_folder).fingerprint != first_fingerprint
    assert LocalModel.load(model_folder).fingerprint == first_fingerprint


def test_the_saved_program_names_the_trained_model_and_the_one_at_the_start(
    fine_tuning: FineTuning, model_folder: Path
) -> None:
    """The trained model does the task. A model that writes prompts is asked as it was before."""
    manifest = read_manifest(fine_tuning.program)

    trained_model = f"local:{fine_tuning.outcome.run / 'model'}"
    assert manifest.lms == {"task": trained_model, "prompt": f"local:{model_folder}"}
    assert manifest.optimizer["name"] == "finetune"


def test_a_fine_tuning_is_scored_before_with_the_first_weights_and_after_with_the_trained_ones(
    fine_tuning: FineTuning, model_folder: Path
) -> None:
    """The name of a trained model is that of the first one, and a mark behind a "+"."""
    assert fine_tuning.outcome.before.lm == f"local/{model_folder}"
    assert fine_tuning.outcome.after.lm.startswith(f"local/{model_folder}+")


def test_the_command_line_asks_the_trained_model_by_its_name(
    fine_tuning: FineTuning, tmp_path: Path, cli: RunCommand
) -> None:
    history_file = tmp_path / "history.json"
    message = {"role": "user", "content": "I am Gus, I live in Oslo."}
    history_file.write_text(json.dumps([message]))
    trained_model = str(fine_tuning.outcome.model)

    exit_code, output, _ = cli(
        "ask",
        fine_tuning.program,
        "Where does Gus live?",
        "--history",
        history_file,
        "--json",
        "--lm",
        trained_model,
    )

    assert exit_code == 0
    assert json.loads(output)["lm"] == trained_model


def test_wrong_training_settings_are_refused_before_anything_runs(inputs: Any) -> None:
    config = CompileConfig("finetune", settings={"epochs": "many"})
    with pytest.raises(UserError, match="epochs = 'many': Input should be a valid integer"):
        run_compile("turn-rag", inputs, config)
