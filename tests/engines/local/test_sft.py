"""Supervised fine-tuning: it learns completions only, always alike; `compile --optimizer finetune` saves it."""

import json

import dspy
import pytest
import torch
from mempiler import DataError, UserError, build
from mempiler.cli import main
from mempiler.data.catalog import benchmark
from mempiler.engines.local.engine import local_lm
from mempiler.engines.local.model import LocalModel
from mempiler.engines.local.settings import Finetuning
from mempiler.engines.local.sft import fit as fit_with
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.optimizers.compile import CompileConfig
from mempiler.runs.compile import KeepOptions, run_compile
from mempiler.runs.manifest import read_manifest

from tests.engines.local.groups import sample

from ...run_inputs import run_inputs


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


def test_a_largest_gradient_norm_of_0_clips_nothing(make_model):
    def trained(norm):
        model = make_model()
        fit(model, EXAMPLES, epochs=2, learning_rate=1e-2, batch_size=1, max_grad_norm=norm)
        return model

    unclipped = trained(0.0)
    assert unclipped.fingerprint != make_model().fingerprint
    assert unclipped.fingerprint == trained(1e9).fingerprint != trained(1e-3).fingerprint


def test_examples_beyond_the_context_are_left_out(make_model):
    model = make_model(context=12)
    assert len(fit(model, [*EXAMPLES, chat("w1 " * 20, "w2")], epochs=1, batch_size=1)) == 3
    with pytest.raises(DataError, match="no example fits the 12 tokens"):
        fit(model, [chat("w1 " * 20, "w2")])
    with pytest.raises(DataError, match="no example to learn from"):
        fit(model, [])


ROWS = [
    {"messages": [*messages, {"role": "assistant", "content": text}]} for messages, text in EXAMPLES
]


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


USERS = ("Ann", "Bob", "Cid", "Dan", "Eve", "Fay", "Gil", "Hal")
SAID = "[[ ## answer ## ]]\nOslo in Norway\n\n[[ ## completed ## ]]"
SETTINGS = {"learning_rate": 1e-3, "epochs": 2, "batch_size": 2}


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    """A file of questions that all have the same answer."""
    path = tmp_path_factory.mktemp("data") / "questions.jsonl"
    rows = [
        {"user": name, "messages": [{"role": "user", "content": f"I am {name}, I live in Oslo."}],
         "question": f"Where does {name} live?", "answer": "Oslo"}
        for name in USERS
    ]  # fmt: skip
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


class Recorder(OfflineEngine):
    """An engine that answers rightly and keeps the prompts."""

    supports_response_schema = False

    def __init__(self):
        super().__init__()
        self.prompts = []

    def reply(self, request):
        messages = [{"role": "system", "content": request.system}]
        self.prompts.append(
            messages + [{"role": m.role, "content": m.text} for m in request.messages]
        )
        return SAID


@pytest.fixture(scope="module")
def folder(questions, tmp_path_factory):
    """A model that answers every prompt in DSPy's form with "Oslo in Norway": half right by token F1."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    engine, program = Recorder(), build("turn-rag")
    with dspy.context(
        lm=dspy.LM("test/recorder", engine=engine, cache=False), trace=None, disable_history=True
    ):
        for example in benchmark("jsonl", questions).examples:
            program(**example.inputs())
    prompts = engine.prompts
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer, pieces.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<pad>", "<eos>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    texts = [message["content"] for messages in prompts for message in messages]
    pieces.train_from_iterator(texts, trainer)
    # An answer of three tokens, each of them once, is learned in a few steps.
    pieces.add_tokens(
        ["[[ ## answer ## ]]\n", "Oslo in Norway", "Oslo", "\n\n[[ ## completed ## ]]"]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=pieces, pad_token="<pad>", eos_token="<eos>"
    )
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=2048, **sizes, **ids)
    model = LocalModel(LlamaForCausalLM(config), tokenizer)
    fit(
        model,
        [(messages, SAID) for messages in prompts],
        steps=30,
        learning_rate=2e-2,
        batch_size=3,
    )
    said = sample(model, [model.encode(messages) for messages in prompts], 0.0, 40)
    assert {sample.text for sample in said} == {SAID}
    return model.save(tmp_path_factory.mktemp("models") / "start")


@pytest.fixture
def inputs(questions, folder):
    return run_inputs(
        "jsonl", data=str(questions), lm=f"local:{folder}", train=3, dev=2, test=2, threads=2
    )


def test_a_fine_tuned_model_is_saved_named_and_asked_again(inputs, folder, tmp_path, capsys):
    before = LocalModel.load(folder).fingerprint
    outcome = run_compile(
        "turn-rag",
        inputs,
        CompileConfig("finetune", settings=SETTINGS),
        KeepOptions(tmp_path / "program", force=True),
    )
    assert outcome.model == f"local:{outcome.run / 'model'}" == outcome.to_dict()["model"]
    tuned = LocalModel.load(outcome.run / "model")
    assert tuned.fingerprint != before == LocalModel.load(folder).fingerprint
    manifest = read_manifest(tmp_path / "program")
    assert manifest.lms == {"task": outcome.model, "prompt": f"local:{folder}"}
    assert manifest.optimizer["name"] == "finetune"
    # The start was scored by the start's weights, the result by the trained ones.
    assert outcome.before.lm == f"local/{folder}"
    assert outcome.after.lm.startswith(f"local/{folder}+")
    past = tmp_path / "past.json"
    past.write_text(json.dumps([{"role": "user", "content": "I am Gus, I live in Oslo."}]))
    capsys.readouterr()
    asked = [
        "ask",
        str(tmp_path / "program"),
        "Where does Gus live?",
        "--history",
        str(past),
        "--json",
    ]
    main([*asked, "--lm", str(outcome.model)])
    assert json.loads(capsys.readouterr().out)["lm"] == outcome.model


def test_wrong_training_settings_are_refused_before_anything_runs(inputs):
    with pytest.raises(UserError, match="epochs = 'many': Input should be a valid integer"):
        run_compile("turn-rag", inputs, CompileConfig("finetune", settings={"epochs": "many"}))
