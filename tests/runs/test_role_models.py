"""Where the models of a run are asked, and that each of them can be is known before anything is paid for."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler import EndpointError, UserError
from mempiler.engines.limits import BudgetGuard
from mempiler.engines.meter import Meter
from mempiler.runs.api import make_training
from mempiler.runs.exports.environment import Export
from mempiler.runs.folder import RunFolder
from mempiler.runs.inputs import RunInputs
from mempiler.runs.role_models import RoleModel, check_models, role_models
from mempiler.runs.run import Run
from mempiler.runs.train import (
    check_reward_answer_model,
    load_reward_answer_model,
    reward_answer_model,
)

from ..run_inputs import run_config, with_options

DEAD = "http://127.0.0.1:9/v1"
"""An address at which nothing listens."""
HERE = "http://127.0.0.1:8000/v1"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "COHERE_API_KEY",
        "CO_API_KEY",
        "OPENAI_BASE_URL",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("lm", "name", "address"),
    [
        ("openai/a", "openai/b", HERE),
        ("hosted_vllm/a", "openai/b", HERE),
        ("hosted_vllm/a", "hosted_vllm/b", HERE),
        ("anthropic/a", "anthropic/b", HERE),
        # The key of one provider is not sent to another's server.
        ("openai/a", "anthropic/b", None),
        ("hosted_vllm/a", "openrouter/b", None),
        # Where the task LM runs in this process, the address can be meant for the others alone.
        ("offline", "hosted_vllm/b", HERE),
        ("openai/a", "offline", None),
        ("openai/a", "gguf:tiny", None),
        ("openai/a", "local:folder", None),
        ("openai/a", None, None),
    ],
)
@pytest.mark.parametrize("role", ["prompt", "judge", "answer"])
def test_the_address_of_the_run_is_that_of_every_role_that_can_be_asked_there(
    lm, name, address, role
):
    roles = role_models(run_config("locomo", lm=lm, api_base=HERE, **{f"{role}_lm": name}))
    assert roles["task"].address == HERE
    assert roles[role].address == address
    own = run_config(
        "locomo", lm=lm, api_base=HERE, **{f"{role}_lm": name, f"{role}_api_base": DEAD}
    )
    assert role_models(own)[role] == RoleModel(name, DEAD)


def test_every_role_asks_at_the_address_of_the_run(mempiler_cli: Any, stub: Any) -> None:
    server = stub()
    prompt_lm, answer_lm, judge_lm = (
        f"openai/{role}-{server.model[-8:]}" for role in ("prompt", "answer", "judge")
    )
    compiling = [
        "--optimizer",
        "copro",
        "--optimizer-set",
        "breadth=2",
        "--optimizer-set",
        "depth=1",
        "--force",
    ]
    ran = mempiler_cli(
        server, "compile", "turn-rag", "--prompt-lm", prompt_lm, *compiling, train=3, dev=1, test=1
    )
    assert ran.code == 0, ran.err
    judging = ["--benchmark-set", "metric=judge", "--judge-lm", judge_lm, "--answer-lm", answer_lm]
    ran = mempiler_cli(server, "evaluate", "turn-rag", *judging, test=1)
    assert ran.code == 0, ran.err
    assert {f"openai/{body['model']}" for _, _, body in server.requests} == {
        server.model,
        prompt_lm,
        answer_lm,
        judge_lm,
    }


def test_every_role_takes_an_object(stub: Any) -> None:
    server = stub()

    def model_of(role: str) -> dspy.LM:
        return dspy.LM(f"openai/{role}-{server.model[-8:]}", api_base=server.url, api_key="k")

    task_lm, prompt_lm, answer_lm, judge_lm = (
        model_of(role) for role in ("task", "prompt", "answer", "judge")
    )
    compiling = {"optimizer": "copro", "optimizer_set": {"breadth": 2, "depth": 1}}
    sizes = {"benchmark": "locomo", "train": 3, "dev": 1, "test": 1, "progress": False}
    assert (
        mempiler.plan("turn-rag", lm=task_lm, prompt_lm=prompt_lm, **compiling, **sizes).calls.low
        > 0
    )
    assert server.answered == 0
    compiled = mempiler.compile(
        "turn-rag", lm=task_lm, prompt_lm=prompt_lm, force=True, **compiling, **sizes
    )
    calls = compiled.usage["calls"]
    assert calls["task"] > 0
    assert calls["prompt"] > 0
    assert calls["task"] + calls["prompt"] == server.answered
    evaluation = mempiler.evaluate(
        "turn-rag",
        metric="judge",
        split="test",
        lm=task_lm,
        judge_lm=judge_lm,
        answer_lm=answer_lm,
        **sizes,
    )
    assert evaluation.n == 1
    models = {f"openai/{body['model']}" for _, _, body in server.requests}
    assert models == {lm.model for lm in (task_lm, prompt_lm, answer_lm, judge_lm)}
    assert all(headers["Authorization"] == "Bearer k" for _, headers, _ in server.requests)


def test_a_part_of_a_run_with_a_model_of_another_name_does_not_ask_the_users_object(
    tmp_path: Path,
) -> None:
    lm = dspy.LM("openai/mine", api_key="k")
    inputs = RunInputs(run_config("locomo", lm="openai/mine"), user_models={"task": lm})
    run = Run(inputs, Meter(), BudgetGuard(), RunFolder(tmp_path))
    assert run.models.user_model("task", "openai/mine") is lm
    part = replace(run, inputs=with_options(inputs, lm="local:trained"))
    assert part.models.user_model("task", "local:trained") is None


def test_a_model_that_is_trained_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'local:NAME'") as error:
        mempiler.train(
            "memory-r2", benchmark="memory-env", lm=dspy.LM("openai/x", api_key="k"), progress=False
        )
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="give the object as answer_lm="):
        mempiler.train(
            "memory-r2",
            benchmark="memory-env",
            lm="local:tiny",
            train_set={"answer_lm": dspy.LM("openai/x", api_key="k")},
            progress=False,
        )


def test_an_object_answers_for_the_rewards_of_a_training(tmp_path: Path, stub: Any) -> None:
    server = stub()
    lm = dspy.LM(server.model, api_base=server.url, api_key="k", cache=False)
    inputs = RunInputs(
        run_config("memory-env", lm="local:tiny", answer_lm=lm.model), user_models={"answer": lm}
    )
    course = make_training(inputs.config, "logo-grpo")
    assert course.answer_lm == lm.model
    folder = RunFolder(tmp_path)
    folder.write({"settings": {}})
    run = Run(inputs, Meter(), BudgetGuard(), folder)
    check_reward_answer_model(inputs, reward_answer_model(inputs.config, course))
    reader = load_reward_answer_model(run, course)
    assert reader is not None
    reader("Where?")
    assert run.meter.read().calls["judge"] == 1
    assert reader.kwargs["temperature"] == 0.0


def test_an_export_takes_no_object() -> None:
    user_lm = dspy.LM("openai/x", api_key="k")
    config = run_config("memory-env", lm="offline")
    with pytest.raises(
        UserError, match="lm: openai/x is an object; an export holds the names of models"
    ):
        Export.of("memory-r2", RunInputs(config, user_models={"task": user_lm}))
    with pytest.raises(
        UserError, match=r"answer_lm: openai/x is an object, .*; leave answer_lm out"
    ):
        Export.of("memory-r2", RunInputs(config, user_models={"answer": user_lm}))
    with pytest.raises(
        UserError, match="an export reads its questions from the file of a benchmark"
    ):
        Export.of("memory-r2", RunInputs(config, mempiler.benchmark("memory-env")))


REFUSED: dict[str, tuple[list[str], int, str]] = {
    "unknown provider": (["--prompt-lm", "nosuch/x"], 2, "'nosuch/x': no provider is known for it"),
    "missing key": (
        ["--judge-lm", "anthropic/x"],
        2,
        "'anthropic/x': there is no key; set ANTHROPIC_API_KEY",
    ),
    "unreachable": (
        ["--prompt-lm", "openai/x", "--prompt-api-base", DEAD],
        3,
        "'openai/x': its server cannot be reached: Connection refused: 127.0.0.1:9",
    ),
    "unreachable judge": (
        ["--judge-lm", "hosted_vllm/x", "--judge-api-base", DEAD],
        3,
        "cannot be reached",
    ),
    "unreachable by litellm": (
        ["--prompt-lm", "lm_studio/x", "--prompt-api-base", DEAD],
        3,
        "cannot be reached",
    ),
    "not at the address of the run": (
        ["--prompt-lm", "openai/unknown"],
        2,
        "has no such model; it has known (asked at --api-base; --prompt-api-base names another address)",
    ),
    "embedder without a key": (
        ["--embedder", "openai/x"],
        2,
        "embedder 'openai/x' needs a key; set OPENAI_API_KEY",
    ),
    "embedder without a key by litellm": (
        ["--embedder", "cohere/embed-x"],
        2,
        "there is no key; set",
    ),
    "embedder of nobody": (
        ["--embedder", "nosuch-model"],
        2,
        "'nosuch-model': no provider is known for it",
    ),
    "unreachable embedder": (
        ["--embedder", "x", "--embedder-api-base", DEAD],
        3,
        "embedder 'x': its server cannot be reached: Connection refused: 127.0.0.1:9",
    ),
}


@pytest.mark.parametrize(("options", "code", "problem"), REFUSED.values(), ids=REFUSED)
def test_a_model_that_cannot_be_asked_is_one_line_before_anything_is_paid(
    mempiler_cli, stub, options, code, problem
):
    server = stub(lambda n, text: "404" if text == "Hi" else None, models=["known"])
    server.model = "openai/known"
    ran = mempiler_cli(server, "compile", "turn-rag", *options)
    assert ran.code == code, ran.err
    assert problem in ran.line, ran.err
    assert server.answered == 0


def test_a_model_that_the_user_made_is_checked_as_a_named_one_is() -> None:
    lm = dspy.LM("openai/x", api_base=DEAD, api_key="none")
    inputs = RunInputs(run_config("locomo", lm="openai/x"), user_models={"task": lm})
    with pytest.raises(EndpointError, match="'openai/x': its server cannot be reached"):
        check_models(inputs)
    check_models(with_options(inputs, resume="a run whose store may hold all that is needed"))


def test_an_embedder_and_a_reranker_are_looked_for_before_anything_is_paid(
    mempiler_cli, stub, monkeypatch
):
    monkeypatch.setitem(sys.modules, "fastembed", None)
    server = stub()
    embedder = ["--embedder", "vectors", "--embedder-api-base", server.url]
    ran = mempiler_cli(server, "evaluate", "turn-rag", *embedder, "--reranker", "fastembed:x")
    assert ran.code == 2
    assert "fastembed is not installed" in ran.line
    assert server.requests == []
    ran = mempiler_cli(server, "evaluate", "turn-rag", *embedder, test=1)
    assert ran.code == 0, ran.err


def test_a_resumed_run_that_needs_nothing_more_needs_no_server(
    mempiler_cli: Any, stub: Any
) -> None:
    server = stub()
    words = ["evaluate", "turn-rag", "--prompt-lm", "openai/x"]
    first = mempiler_cli(server, *words, test=2)
    assert first.code == 0, first.err
    moved = [*words, "--prompt-api-base", DEAD]
    again = mempiler_cli(server, *moved, "--resume", first.found["run_id"], test=2)
    assert again.code == 0, again.err
    assert again.found["score"] == first.found["score"]
    anew = mempiler_cli(server, *moved, test=2)
    assert anew.code == 3
    assert "its server cannot be reached" in anew.line
