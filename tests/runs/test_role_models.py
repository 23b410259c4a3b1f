"""Where the models of a run are asked, and that they are checked before anything is paid for.

A model has a role in a run: the task LM writes and answers, the prompt LM proposes prompts to an
optimizer, the judge scores answers, and another model may answer instead of the task LM. Each role
has an option for the address of its server, as `--judge-api-base`. `--api-base` is the address of
the task LM, and other roles may share it.
"""

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

UNREACHABLE = "http://127.0.0.1:9/v1"
"""An address at which nothing listens."""
RUN_ADDRESS = "http://127.0.0.1:8000/v1"
"""The address that a run is given with `--api-base`."""


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the keys and addresses of providers out of the environment."""
    for name in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "COHERE_API_KEY",
        "CO_API_KEY",
        "OPENAI_BASE_URL",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("task_lm", "name", "address"),
    [
        ("openai/a", "openai/b", RUN_ADDRESS),
        ("hosted_vllm/a", "openai/b", RUN_ADDRESS),
        ("hosted_vllm/a", "hosted_vllm/b", RUN_ADDRESS),
        ("anthropic/a", "anthropic/b", RUN_ADDRESS),
        # The key for one provider is not sent to the server of another.
        ("openai/a", "anthropic/b", None),
        ("hosted_vllm/a", "openrouter/b", None),
        # The task LM runs in this process, so the address can only be meant for other models.
        ("offline", "hosted_vllm/b", RUN_ADDRESS),
        # The model of the role runs in this process, or there is none.
        ("openai/a", "offline", None),
        ("openai/a", "gguf:tiny", None),
        ("openai/a", "local:folder", None),
        ("openai/a", None, None),
    ],
)
@pytest.mark.parametrize("role", ["prompt", "judge", "answer"])
def test_a_role_without_an_address_takes_the_address_of_the_run_if_its_model_may_be_there(
    task_lm, name, address, role
):
    """The name of a model begins with its provider.

    Servers of many kinds offer their models as "openai/NAME".
    """
    config = run_config("locomo", lm=task_lm, api_base=RUN_ADDRESS, **{f"{role}_lm": name})

    models = role_models(config)

    assert models["task"].address == RUN_ADDRESS
    assert models[role].address == address


@pytest.mark.parametrize("task_lm", ["openai/a", "hosted_vllm/a", "anthropic/a", "offline"])
@pytest.mark.parametrize(
    "name",
    [
        "openai/b",
        "hosted_vllm/b",
        "anthropic/b",
        "openrouter/b",
        "offline",
        "gguf:tiny",
        "local:folder",
        None,
    ],
)
@pytest.mark.parametrize("role", ["prompt", "judge", "answer"])
def test_a_role_with_an_address_is_asked_there(task_lm, name, role):
    options = {f"{role}_lm": name, f"{role}_api_base": UNREACHABLE}
    config = run_config("locomo", lm=task_lm, api_base=RUN_ADDRESS, **options)

    assert role_models(config)[role] == RoleModel(name, UNREACHABLE)


def requested_models(server: Any) -> set[str]:
    """Return the names of all models that a stub server was asked for."""
    # A request is kept as path, headers and body.
    return {f"openai/{body['model']}" for _, _, body in server.requests}


def used_keys(server: Any) -> set[str]:
    """Return the keys that all requests to a stub server came with, as in "Bearer KEY"."""
    return {headers["Authorization"] for _, headers, _ in server.requests}


def test_the_models_of_all_roles_are_asked_at_the_address_of_the_run(
    mempiler_cli: Any, stub: Any
) -> None:
    """The optimizer `copro` asks the prompt LM, and the metric `judge` asks the judge."""
    server = stub()
    # Part of the server's own name keeps these apart from models in DSPy's cache.
    suffix = server.model[-8:]
    prompt_lm = f"openai/prompt-{suffix}"
    answer_lm = f"openai/answer-{suffix}"
    judge_lm = f"openai/judge-{suffix}"

    compiled = mempiler_cli(
        server,
        *("compile", "turn-rag"),
        *("--prompt-lm", prompt_lm),
        *("--optimizer", "copro"),
        *("--optimizer-set", "breadth=2"),
        *("--optimizer-set", "depth=1"),
        "--force",
        train=3,
        dev=1,
        test=1,
    )
    assert compiled.code == 0, compiled.err

    evaluated = mempiler_cli(
        server,
        *("evaluate", "turn-rag"),
        *("--benchmark-set", "metric=judge"),
        *("--judge-lm", judge_lm),
        *("--answer-lm", answer_lm),
        test=1,
    )
    assert evaluated.code == 0, evaluated.err

    assert requested_models(server) == {server.model, prompt_lm, answer_lm, judge_lm}


def model_object(server: Any, role: str) -> dspy.LM:
    """Return a model of DSPy at a stub server; its name says which role it is for."""
    return dspy.LM(f"openai/{role}-{server.model[-8:]}", api_base=server.url, api_key="k")


FEW_QUESTIONS: dict[str, Any] = {
    "benchmark": "locomo",
    "train": 3,
    "dev": 1,
    "test": 1,
    "progress": False,
}


def test_a_plan_asks_no_model_object(stub: Any) -> None:
    server = stub()

    plan = mempiler.plan(
        "turn-rag",
        lm=model_object(server, "task"),
        prompt_lm=model_object(server, "prompt"),
        optimizer="copro",
        optimizer_set={"breadth": 2, "depth": 1},
        **FEW_QUESTIONS,
    )

    assert plan.calls.low > 0
    assert server.answered == 0


def test_task_lm_and_prompt_lm_of_a_compile_may_be_objects_of_dspy(stub: Any) -> None:
    """The optimizer `copro` asks the prompt LM for better instructions."""
    server = stub()
    task_lm = model_object(server, "task")
    prompt_lm = model_object(server, "prompt")

    compiled = mempiler.compile(
        "turn-rag",
        lm=task_lm,
        prompt_lm=prompt_lm,
        optimizer="copro",
        optimizer_set={"breadth": 2, "depth": 1},
        force=True,
        **FEW_QUESTIONS,
    )

    calls = compiled.usage["calls"]
    assert calls["task"] > 0
    assert calls["prompt"] > 0
    assert calls["task"] + calls["prompt"] == server.answered
    assert requested_models(server) == {task_lm.model, prompt_lm.model}
    assert used_keys(server) == {"Bearer k"}


def test_answer_model_and_judge_of_an_evaluation_may_be_objects_of_dspy(stub: Any) -> None:
    """The metric `judge` asks the judge. The answer model answers in place of the task LM."""
    server = stub()
    answer_lm = model_object(server, "answer")
    judge_lm = model_object(server, "judge")

    evaluation = mempiler.evaluate(
        "turn-rag",
        metric="judge",
        split="test",
        lm=model_object(server, "task"),
        judge_lm=judge_lm,
        answer_lm=answer_lm,
        **FEW_QUESTIONS,
    )

    assert evaluation.n == 1
    assert requested_models(server) == {answer_lm.model, judge_lm.model}
    assert used_keys(server) == {"Bearer k"}


def test_a_part_of_a_run_with_a_model_of_another_name_does_not_ask_the_users_object(
    tmp_path: Path,
) -> None:
    """In a reproduction, one part may evaluate the model that another part has trained."""
    user_lm = dspy.LM("openai/mine", api_key="k")
    inputs = RunInputs(run_config("locomo", lm="openai/mine"), user_models={"task": user_lm})
    run = Run(inputs, Meter(), BudgetGuard(), RunFolder(tmp_path))
    part_of_run = replace(run, inputs=with_options(inputs, lm="local:trained"))

    assert run.models.user_model("task", "openai/mine") is user_lm
    assert part_of_run.models.user_model("task", "local:trained") is None


def test_the_model_to_train_cannot_be_an_object() -> None:
    """A training changes the weights of a model in a folder, which "local:NAME" names."""
    user_lm = dspy.LM("openai/x", api_key="k")

    with pytest.raises(UserError, match="'local:NAME'") as error:
        mempiler.train("memory-r2", benchmark="memory-env", lm=user_lm, progress=False)

    assert "\n" not in str(error.value)


def test_a_setting_of_a_training_cannot_be_an_object() -> None:
    user_lm = dspy.LM("openai/x", api_key="k")

    with pytest.raises(UserError, match="give the object as answer_lm="):
        mempiler.train(
            "memory-r2",
            benchmark="memory-env",
            lm="local:tiny",
            train_set={"answer_lm": user_lm},
            progress=False,
        )


def test_a_users_model_object_answers_the_questions_that_give_a_training_its_rewards(
    tmp_path: Path, stub: Any
) -> None:
    """A training rewards its model for memories from which questions are answered rightly.

    Another model may answer them. It helps to score, so its calls count as those of a judge, and
    its temperature is 0.
    """
    server = stub()
    user_lm = dspy.LM(server.model, api_base=server.url, api_key="k", cache=False)
    # A run that Python code starts with `answer_lm=user_lm` has the object and its name.
    inputs = RunInputs(
        run_config("memory-env", lm="local:tiny", answer_lm=user_lm.model),
        user_models={"answer": user_lm},
    )
    training = make_training(inputs.config, "logo-grpo")
    assert training.answer_lm == user_lm.model
    check_reward_answer_model(inputs, reward_answer_model(inputs.config, training))
    folder = RunFolder(tmp_path)
    folder.write({"settings": {}})
    run = Run(inputs, Meter(), BudgetGuard(), folder)

    answer_lm = load_reward_answer_model(run, training)

    assert answer_lm is not None
    answer_lm("Where?")
    assert run.meter.read().calls["judge"] == 1
    assert answer_lm.kwargs["temperature"] == 0.0


def refusal_to_export(user_models: dict[str, dspy.LM]) -> str:
    """Export a run with model objects of the user; return the message of the error.

    Args:
        user_models: The objects by the role of each in the run.
    """
    inputs = RunInputs(run_config("memory-env", lm="offline"), user_models=user_models)
    with pytest.raises(UserError) as error:
        Export.of("memory-r2", inputs)
    return str(error.value)


def test_an_export_takes_the_name_of_a_task_lm_and_no_object() -> None:
    """An export is a package of files, which can only hold the name of a model.

    In Python a user gives the task LM as the argument `lm`, which the message names.
    """
    user_lm = dspy.LM("openai/x", api_key="k")

    message = refusal_to_export({"task": user_lm})

    assert "lm: openai/x is an object; an export holds the names of models" in message


def test_an_export_takes_no_object_that_answers_in_place_of_the_task_lm() -> None:
    """In Python a user gives such a model as the argument `answer_lm`, which the message names.

    An export has no place even for its name, so the user has to leave it out.
    """
    user_lm = dspy.LM("openai/x", api_key="k")

    message = refusal_to_export({"answer": user_lm})

    assert "answer_lm: openai/x is an object" in message
    assert "leave answer_lm out" in message


def test_an_export_takes_no_benchmark_object() -> None:
    config = run_config("memory-env", lm="offline")
    inputs = RunInputs(config, mempiler.benchmark("memory-env"))

    with pytest.raises(UserError, match="reads its questions from the file of a benchmark"):
        Export.of("memory-r2", inputs)


@pytest.mark.parametrize(
    ("options", "exit_code", "problem"),
    [
        pytest.param(
            ["--prompt-lm", "nosuch/x"],
            2,
            "'nosuch/x': no provider is known for it",
            id="unknown provider",
        ),
        pytest.param(
            ["--judge-lm", "anthropic/x"],
            2,
            "'anthropic/x': there is no key; set ANTHROPIC_API_KEY",
            id="missing key",
        ),
        pytest.param(
            ["--prompt-lm", "openai/x", "--prompt-api-base", UNREACHABLE],
            3,
            "'openai/x': its server cannot be reached: Connection refused: 127.0.0.1:9",
            id="unreachable",
        ),
        pytest.param(
            ["--judge-lm", "hosted_vllm/x", "--judge-api-base", UNREACHABLE],
            3,
            "cannot be reached",
            id="unreachable judge",
        ),
        pytest.param(
            ["--prompt-lm", "lm_studio/x", "--prompt-api-base", UNREACHABLE],
            3,
            "cannot be reached",
            id="unreachable by litellm",
        ),
        pytest.param(
            ["--prompt-lm", "openai/unknown"],
            2,
            "has no such model; it has known "
            "(asked at --api-base; --prompt-api-base names another address)",
            id="not at the address of the run",
        ),
        pytest.param(
            ["--embedder", "openai/x"],
            2,
            "embedder 'openai/x' needs a key; set OPENAI_API_KEY",
            id="embedder without a key",
        ),
        pytest.param(
            ["--embedder", "cohere/embed-x"],
            2,
            "there is no key; set",
            id="embedder without a key by litellm",
        ),
        pytest.param(
            ["--embedder", "nosuch-model"],
            2,
            "'nosuch-model': no provider is known for it",
            id="embedder of an unknown provider",
        ),
        pytest.param(
            ["--embedder", "x", "--embedder-api-base", UNREACHABLE],
            3,
            "embedder 'x': its server cannot be reached: Connection refused: 127.0.0.1:9",
            id="unreachable embedder",
        ),
    ],
)
def test_a_model_that_cannot_be_asked_is_refused_before_anything_is_paid(
    mempiler_cli, stub, options, exit_code, problem
):
    """Exit code 2 means a mistake of the user, and 3 a server that fails."""

    def know_no_model_that_is_checked(request_number: int, prompt: str) -> str | None:
        # To check a model means to send it "Hi".
        return "404" if prompt == "Hi" else None

    # The server lists the model `known`, which the task LM is; so that one is not sent anything.
    server = stub(know_no_model_that_is_checked, models=["known"])
    server.model = "openai/known"

    command = mempiler_cli(server, "compile", "turn-rag", *options)

    assert command.code == exit_code, command.err
    assert problem in command.error_line, command.err
    assert server.answered == 0


def test_the_users_model_object_is_checked_like_a_named_model() -> None:
    user_lm = dspy.LM("openai/x", api_base=UNREACHABLE, api_key="none")
    inputs = RunInputs(run_config("locomo", lm="openai/x"), user_models={"task": user_lm})

    with pytest.raises(EndpointError, match="'openai/x': its server cannot be reached"):
        check_models(inputs)


def test_the_users_model_object_is_not_checked_if_a_run_is_resumed() -> None:
    """A resumed run may have all answers already, so it may start without the server."""
    user_lm = dspy.LM("openai/x", api_base=UNREACHABLE, api_key="none")
    config = run_config("locomo", lm="openai/x", resume="the name of a run")

    check_models(RunInputs(config, user_models={"task": user_lm}))


def test_embedder_and_reranker_are_checked_before_anything_is_paid(mempiler_cli, stub, monkeypatch):
    """An embedder and a reranker are models that search a memory.

    The package `fastembed`, which this reranker needs, is missing.
    """
    # To Python, a module that is None is one that is not installed.
    monkeypatch.setitem(sys.modules, "fastembed", None)
    server = stub()
    embedder_options = ["--embedder", "vectors", "--embedder-api-base", server.url]

    refused = mempiler_cli(
        server, "evaluate", "turn-rag", *embedder_options, "--reranker", "fastembed:x"
    )
    assert refused.code == 2
    assert "fastembed is not installed" in refused.error_line
    assert server.requests == []

    accepted = mempiler_cli(server, "evaluate", "turn-rag", *embedder_options, test=1)
    assert accepted.code == 0, accepted.err


def test_a_resumed_run_that_needs_nothing_more_needs_no_server(
    mempiler_cli: Any, stub: Any
) -> None:
    server = stub()
    command = ["evaluate", "turn-rag", "--prompt-lm", "openai/x"]
    first = mempiler_cli(server, *command, test=2)
    assert first.code == 0, first.err
    command_without_server = [*command, "--prompt-api-base", UNREACHABLE]

    resumed = mempiler_cli(
        server, *command_without_server, "--resume", first.printed_json["run_id"], test=2
    )
    assert resumed.code == 0, resumed.err
    assert resumed.printed_json["score"] == first.printed_json["score"]

    restarted = mempiler_cli(server, *command_without_server, test=2)
    assert restarted.code == 3
    assert "its server cannot be reached" in restarted.error_line
