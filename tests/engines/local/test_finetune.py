"""`compile --with finetune` on a local model: a trained copy, saved, named, and asked again."""

import json

import dspy
import pytest

torch = pytest.importorskip("torch", reason="local models need the local extra")

from mempiler.cli import main  # noqa: E402
from mempiler.data.catalog import benchmark  # noqa: E402
from mempiler.engines.local.model import LocalModel  # noqa: E402
from mempiler.engines.local.settings import Finetuning  # noqa: E402
from mempiler.engines.local.sft import fit  # noqa: E402
from mempiler.engines.offline.engine import OfflineEngine  # noqa: E402
from mempiler.errors import UserError  # noqa: E402
from mempiler.optimizers.compile import Compilation  # noqa: E402
from mempiler.programs.catalog import build  # noqa: E402
from mempiler.runs.compile import run_compile  # noqa: E402
from mempiler.runs.manifest import read_manifest  # noqa: E402
from mempiler.runs.setup import Setup  # noqa: E402

from tests.engines.local.groups import sample  # noqa: E402

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
        self.prompts.append(messages + [{"role": m.role, "content": m.text} for m in request.messages])
        return SAID


@pytest.fixture(scope="module")
def folder(questions, tmp_path_factory):
    """A model that answers every prompt in DSPy's form with "Oslo in Norway": half right by token F1."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    engine, program = Recorder(), build("turn-rag")
    with dspy.context(lm=dspy.LM("test/recorder", engine=engine, cache=False), trace=None, disable_history=True):
        for example in benchmark("jsonl", questions).examples:
            program(**example.inputs())
    prompts = engine.prompts
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer, pieces.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<pad>", "<eos>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    texts = [message["content"] for messages in prompts for message in messages]
    pieces.train_from_iterator(texts, trainer)
    # An answer of three tokens, each of them once, is learned in a few steps.
    pieces.add_tokens(["[[ ## answer ## ]]\n", "Oslo in Norway", "Oslo", "\n\n[[ ## completed ## ]]"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces, pad_token="<pad>", eos_token="<eos>")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=2048, **sizes, **ids)
    model = LocalModel(LlamaForCausalLM(config), tokenizer)
    fit(model, [(messages, SAID) for messages in prompts], Finetuning(steps=30, learning_rate=2e-2, batch_size=3))
    said = sample(model, [model.encode(messages) for messages in prompts], 0.0, 40)
    assert {sample.text for sample in said} == {SAID}
    return model.save(tmp_path_factory.mktemp("models") / "start")


@pytest.fixture
def setup(questions, folder):
    return Setup("jsonl", data=str(questions), lm=f"local:{folder}", train=3, dev=2, test=2, threads=2)


def test_a_fine_tuned_model_is_saved_named_and_asked_again(setup, folder, tmp_path, capsys):
    before = LocalModel.load(folder).fingerprint
    outcome = run_compile(
        "turn-rag", setup, Compilation("finetune", settings=SETTINGS), tmp_path / "program", force=True
    )
    assert outcome.model == f"local:{outcome.run / 'model'}" == outcome.summary()["model"]
    tuned = LocalModel.load(outcome.run / "model")
    assert tuned.fingerprint != before == LocalModel.load(folder).fingerprint
    manifest = read_manifest(tmp_path / "program")
    assert manifest.lms == {"task": outcome.model, "prompt": f"local:{folder}"}
    assert manifest.optimizer["name"] == "finetune"
    # The start was scored by the start's weights, the result by the trained ones.
    assert outcome.start.lm == f"local/{folder}"
    assert outcome.result.lm.startswith(f"local/{folder}+")
    past = tmp_path / "past.json"
    past.write_text(json.dumps([{"role": "user", "content": "I am Gus, I live in Oslo."}]))
    capsys.readouterr()
    asked = ["ask", str(tmp_path / "program"), "Where does Gus live?", "--history", str(past), "--json"]
    main([*asked, "--lm", str(outcome.model)])
    assert json.loads(capsys.readouterr().out)["lm"] == outcome.model


def test_wrong_training_settings_are_refused_before_anything_runs(setup):
    with pytest.raises(UserError, match="training setting epochs = 'many' does not fit"):
        run_compile("turn-rag", setup, Compilation("finetune", settings={"epochs": "many"}))
