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


@pytest.mark.parametrize("role", ["prompt", "judge", "answer"])
@pytest.mark.parametrize(
    ("task_lm", "role_lm"),
    [
        ("anthropic/a", "anthropic/b"),
        ("hosted_vllm/a", "hosted_vllm/b"),
        # Servers of many kinds offer their models as "openai/NAME".
        ("openai/a", "openai/b"),
        ("hosted_vllm/a", "openai/b"),
        # The task LM runs in this process, so the address can only be meant for other models.
        ("offline", "hosted_vllm/b"),
    ],
)
def test_a_model_of_a_role_is_asked_at_the_address_of_the_run(task_lm, role_lm, role):
    """The role has no address of its own. A model's name begins with its provider."""
    config = run_config("locomo", lm=task_lm, api_base=RUN_ADDRESS, **{f"{role}_lm": role_lm})

    models = role_models(config)

    assert models["task"].address == RUN_ADDRESS
    assert models[role].address == RUN_ADDRESS


@pytest.mark.parametrize("role", ["prompt", "judge", "answer"])
@pytest.mark.parametrize(
    ("task_lm", "role_lm"),
    [("openai/a", "anthropic/b"), ("hosted_vllm/a", "openrouter/b")],
)
def test_a_model_of_another_provider_is_not_asked_at_the_address_of_the_run(task_lm, role_lm, role):
    """Otherwise the key for one provider would be sent to the server of another."""
    config = run_config("locomo", lm=task_lm, api_base=RUN_ADDRESS, **{f"{role}_lm": role_lm})

    assert role_models(config)[role].address is None


@pytest.mark.parametrize("role", ["prompt", "judge", "answer"])
@pytest.mark.parametrize("role_lm", ["offline", "gguf:tiny", "local:folder", None])
def test_a_model_that_runs_in_this_process_has_no_address(role_lm, role):
    config = run_config("locomo", lm="openai/a", api_base=RUN_ADDRESS, **{f"{role}_lm": role_lm})

    assert role_models(config)[role].address is None


@pytest.mark.parametrize("role", ["prompt", "judge", "answer"])
@pytest.mark.parametrize("role_lm", ["openai/b", "anthropic/b", "offline", "local:folder", None])
def test_a_role_with_an_address_of_its_own_is_asked_there(role_lm, role):
    options = {f"{role}_lm": role_lm, f"{role}_api_base": "http://127.0.0.1:9000/v1"}
    config = run_config("locomo", lm="openai/a", api_base=RUN_ADDRESS, **options)

    assert role_models(config)[role] == RoleModel(role_lm, "http://127.0.0.1:9000/v1")


def requested_models(server: Any) -> set[str]:
    """Return the names of all models that a stub server was asked for."""
    return {f"openai/{request.body['model']}" for request in server.requests}


def used_keys(server: Any) -> set[str]:
    """Return the keys that all requests to a stub server came with, as in "Bearer KEY"."""
    return {request.headers["Authorization"] for request in server.requests}


def test_task_lm_and_prompt_lm_of_a_compile_are_asked_at_the_address_of_the_run(
    mempiler_cli: Any, stub: Any
) -> None:
    """The optimizer `copro` asks the prompt LM for better instructions."""
    server = stub()
    # A part of the server's name keeps this model apart from others in DSPy's cache.
    prompt_lm = f"openai/prompt-{server.model[-8:]}"

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
    assert requested_models(server) == {server.model, prompt_lm}


def test_answer_model_and_judge_of_an_evaluation_are_asked_at_the_address_of_the_run(
    mempiler_cli: Any, stub: Any
) -> None:
    """The metric `judge` asks the judge. The answer model answers in place of the task LM."""
    server = stub()
    answer_lm = f"openai/answer-{server.model[-8:]}"
    judge_lm = f"openai/judge-{server.model[-8:]}"

    evaluated = mempiler_cli(
        server,
        *("evaluate", "turn-rag"),
        *("--benchmark-set", "metric=judge"),
        *("--judge-lm", judge_lm),
        *("--answer-lm", answer_lm),
        test=1,
    )

    assert evaluated.code == 0, evaluated.err
    assert requested_models(server) == {answer_lm, judge_lm}


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


def test_a_users_object_is_asked_only_for_the_model_that_it_is(tmp_path: Path) -> None:
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

    with pytest.raises(UserError, match="'local:NAME'"):
        mempiler.train("memory-r2", benchmark="memory-env", lm=user_lm, progress=False)


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


@pytest.fixture
def training_run(tmp_path: Path, stub: Any) -> Run:
    """The run of a training whose questions are answered by a model object of the user.

    A training rewards its model for memories from which questions are answered rightly. Another
    model may answer them.
    """
    server = stub()
    user_lm = dspy.LM(server.model, api_base=server.url, api_key="k", cache=False)
    # `mempiler.train(answer_lm=user_lm)` makes inputs with the name of the object, and with itself.
    inputs = RunInputs(
        run_config("memory-env", lm="local:tiny", answer_lm=user_lm.model),
        user_models={"answer": user_lm},
    )
    folder = RunFolder(tmp_path)
    folder.write({"settings": {}})
    return Run(inputs, Meter(), BudgetGuard(), folder)


def test_the_users_answer_model_of_a_training_is_asked_like_a_judge(training_run: Run) -> None:
    """It helps to score. So its temperature is 0, and its calls count as those of a judge."""
    training = make_training(training_run.inputs.config, "logo-grpo")
    check_reward_answer_model(
        training_run.inputs, reward_answer_model(training_run.inputs.config, training)
    )

    answer_lm = load_reward_answer_model(training_run, training)

    assert answer_lm is not None
    assert answer_lm.kwargs["temperature"] == 0.0
    answer_lm("Where?")
    assert training_run.meter.read().calls["judge"] == 1


def test_an_export_takes_the_name_of_a_task_lm_and_no_object() -> None:
    """An export is a package of files, which can only hold the name of a model."""
    user_lm = dspy.LM("openai/x", api_key="k")
    inputs = RunInputs(run_config("memory-env", lm="offline"), user_models={"task": user_lm})

    with pytest.raises(UserError, match=r"^lm: openai/x is an object; an export holds the names"):
        Export.of("memory-r2", inputs)


def test_an_export_takes_no_object_that_answers_in_place_of_the_task_lm() -> None:
    """An export has no place even for its name, so the user has to leave it out."""
    user_lm = dspy.LM("openai/x", api_key="k")
    inputs = RunInputs(run_config("memory-env", lm="offline"), user_models={"answer": user_lm})

    with pytest.raises(UserError, match=r"answer_lm: openai/x is an object.*leave answer_lm out"):
        Export.of("memory-r2", inputs)


def test_an_export_takes_no_benchmark_object() -> None:
    config = run_config("memory-env", lm="offline")
    inputs = RunInputs(config, mempiler.benchmark("memory-env"))

    with pytest.raises(UserError, match="reads its questions from the file of a benchmark"):
        Export.of("memory-r2", inputs)


@pytest.fixture
def server_of_known_model(stub: Any) -> Any:
    """A stub server whose only model is `known`, which is the task LM.

    To check another model, Mempiler sends it "Hi", and gets the status 404.
    """

    def know_no_other_model(request_number: int, prompt: str) -> str | None:
        return "404" if prompt == "Hi" else None

    server = stub(know_no_other_model, models=["known"])
    server.model = "openai/known"
    return server


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--prompt-lm", "nosuch/x"], "'nosuch/x': no provider is known for it"),
        (["--embedder", "nosuch-model"], "'nosuch-model': no provider is known for it"),
        (["--judge-lm", "anthropic/x"], "'anthropic/x': there is no key; set ANTHROPIC_API_KEY"),
        (["--embedder", "openai/x"], "embedder 'openai/x' needs a key; set OPENAI_API_KEY"),
        (["--embedder", "cohere/embed-x"], "there is no key; set"),
    ],
)
def test_a_model_without_provider_or_key_is_refused_before_anything_is_paid(
    mempiler_cli, server_of_known_model, options, problem
):
    refused = mempiler_cli(server_of_known_model, "compile", "turn-rag", *options)

    assert refused.code == 2, refused.err
    assert problem in refused.error_line
    assert server_of_known_model.answered == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            ["--prompt-lm", "openai/x", "--prompt-api-base", UNREACHABLE],
            "'openai/x': its server cannot be reached: Connection refused: 127.0.0.1:9",
        ),
        (
            ["--embedder", "x", "--embedder-api-base", UNREACHABLE],
            "embedder 'x': its server cannot be reached: Connection refused: 127.0.0.1:9",
        ),
        (
            ["--judge-lm", "hosted_vllm/x", "--judge-api-base", UNREACHABLE],
            "cannot be reached",
        ),
        (
            # The library litellm asks models of this provider.
            ["--prompt-lm", "lm_studio/x", "--prompt-api-base", UNREACHABLE],
            "cannot be reached",
        ),
    ],
    ids=["prompt LM", "embedder", "judge", "a model of litellm"],
)
def test_a_model_whose_server_cannot_be_reached_is_refused_before_anything_is_paid(
    mempiler_cli, server_of_known_model, options, problem
):
    """A server that fails gives the exit code 3."""
    refused = mempiler_cli(server_of_known_model, "compile", "turn-rag", *options)

    assert refused.code == 3, refused.err
    assert problem in refused.error_line
    assert server_of_known_model.answered == 0


def test_a_model_that_the_server_does_not_have_is_refused_before_anything_is_paid(
    mempiler_cli, server_of_known_model
):
    """The message says at which address the model was asked for."""
    refused = mempiler_cli(
        server_of_known_model, "compile", "turn-rag", "--prompt-lm", "openai/unknown"
    )

    assert refused.code == 2, refused.err
    assert (
        "has no such model; it has known "
        "(asked at --api-base; --prompt-api-base names another address)"
    ) in refused.error_line
    assert server_of_known_model.answered == 0


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


def test_a_reranker_whose_package_is_missing_is_refused_before_anything_is_paid(
    mempiler_cli, stub, monkeypatch
):
    """A reranker is a model that sorts the hits of a search; this one needs `fastembed`."""
    # To Python, a module that is None is one that is not installed.
    monkeypatch.setitem(sys.modules, "fastembed", None)
    server = stub()

    refused = mempiler_cli(
        server,
        *("evaluate", "turn-rag"),
        *("--embedder", "vectors"),
        *("--embedder-api-base", server.url),
        *("--reranker", "fastembed:x"),
    )

    assert refused.code == 2
    assert "fastembed is not installed" in refused.error_line
    assert server.requests == []


def test_a_finished_run_is_resumed_although_a_server_cannot_be_reached(
    mempiler_cli: Any, stub: Any
) -> None:
    """It has all answers. A new run of the same command would be refused."""
    server = stub()
    command = ["evaluate", "turn-rag", "--prompt-lm", "openai/x"]
    first = mempiler_cli(server, *command, test=2)
    command_without_server = [*command, "--prompt-api-base", UNREACHABLE]

    resumed = mempiler_cli(
        server, *command_without_server, "--resume", first.printed_json["run_id"], test=2
    )
    restarted = mempiler_cli(server, *command_without_server, test=2)

    assert resumed.code == 0, resumed.err
    assert resumed.printed_json["score"] == first.printed_json["score"]
    assert restarted.code == 3
    assert "its server cannot be reached" in restarted.error_line
