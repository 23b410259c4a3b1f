"""`--plan` of a training: its calls and tokens, its hours, and the memory on each GPU.

A budget of generated tokens says how many completions there can be, but not how long they are. So
the number of steps, and all that follows from it, is a wide range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import dspy

from ..engines.local.memory_plan import (
    COLOCATED_SHARE,
    GIGABYTE,
    HALF_BYTES,
    DeviceUse,
    TrainingMemory,
    reader_gigabytes,
    vllm_use,
)
from ..engines.local.model_shape import ModelShape, model_shape
from ..engines.local.processes import started_processes
from ..engines.local.settings import Reinforcement
from ..engines.model_names import LOCAL, is_local
from ..optimizers.call_bounds import NOTHING, Range
from ..optimizers.logo_grpo.journal import FILE
from ..optimizers.logo_grpo.policy import questions_by_history
from ..optimizers.logo_grpo.settings import Curriculum, TrainingSettings
from ..optimizers.logo_grpo.teleprompter import training_histories
from ..optimizers.logo_grpo.training_config import TINY, TrainingConfig
from ..programs.program import MemoryProgram
from ..records import read_json
from .config import RunConfig
from .folder import RunFolder
from .inputs import RunInputs
from .plan_sizes import MeanWork, estimate_writing, measure_program
from .planning import Plan, make_plan, start_program
from .results_folder import results_folder
from .split_plan import plan_split
from .train import check_trainable

SHORTEST_COMPLETION = 8
"""Tokens of the shortest completion that is expected of a predictor that writes."""

# How far calls and tokens may be from what was measured, as factors.
WRITING_SPREAD = Range(0.5, 1.5)
"""The calls that write memories."""
TOKENS_OF_TRAINING = Range(0.5, 2)
"""The tokens of a training."""


def plan_train(method: object, inputs: RunInputs, training: TrainingConfig) -> Plan:
    """Return the plan of a training: its steps and validations, and the test before and after.

    Hours follow from the completions a second of the last training of this model whose journal is
    on this machine; without one they are not known. The cost is that of so many hours at
    `usd_per_hour`.

    Args:
        method: The method, or the saved program, whose model is trained.
        inputs: Data, models, and the method's settings.
        training: How the model is trained.

    Raises:
        UserError: There is nothing to train, or nothing to train on, or the model cannot be
            trained in this process.
    """
    check_trainable(inputs)
    config = inputs.config
    benchmark = inputs.benchmark
    split = inputs.split()
    program = start_program(method, inputs, benchmark)
    # The training itself would refuse these, too.
    training_histories(
        program, [example for example in split.train if benchmark.in_headline(example)]
    )

    settings = training.training(0)
    mean_work = measure_program(program, benchmark, split.train)

    steps = _plan_steps(settings, training.answer_tokens, split.train, mean_work)
    testing = _scoring_calls(program, split.test, mean_work)
    phases = {
        "scoring before": testing,
        "training": steps.calls,
        "validating": _validation_calls(program, split.dev, mean_work, settings, steps.count),
        "scoring after": testing,
    }
    calls = sum(phases.values(), NOTHING)
    tokens = mean_work.tokens_of(calls, TOKENS_OF_TRAINING)
    plan = make_plan(phases, tokens, mean_work, config)
    plan = replace(
        plan,
        split=plan_split(inputs),
        devices=_gpu_memory(config, training, mean_work),
    )

    completions_per_second = _recorded_rate(config.models.task.name)
    if completions_per_second is None:
        return plan
    seconds = plan.calls.times(1 / completions_per_second)
    plan = replace(plan, minutes=seconds.times(1 / 60))
    if training.usd_per_hour is None:
        return plan
    return replace(plan, usd=seconds.times(training.usd_per_hour / 3600))


def _scoring_calls(
    program: MemoryProgram, examples: Sequence[dspy.Example], mean_work: MeanWork
) -> Range:
    """Return the calls of writing the memories of some questions, and of answering them once."""
    answering = mean_work.answering.times(len(examples)).calls
    writing = WRITING_SPREAD.times(estimate_writing(program, examples, mean_work).calls)
    return Range(answering, answering) + writing


def _validation_calls(
    program: MemoryProgram,
    examples: Sequence[dspy.Example],
    mean_work: MeanWork,
    settings: TrainingSettings,
    step_count: Range,
) -> Range:
    """Return the calls of all validations of a training that has `step_count` steps."""
    # A validation scores the questions once greedily, and `samples` times by sampling.
    validation = _scoring_calls(program, examples, mean_work).times(1 + settings.samples)

    # The start is always validated. At most, there is a validation after every `validate_every`
    # steps, and one at the end of each stage; a stage is one horizon of the curriculum.
    stage_count = len(settings.curriculum.horizons)
    regular_validations = step_count.high // settings.validate_every
    most_validations = 1 + regular_validations + stage_count
    return Range(validation.low, validation.high * most_validations)


@dataclass(frozen=True)
class _PlannedSteps:
    """The steps of all stages of a training."""

    count: Range
    calls: Range
    """Calls of all steps together."""


@dataclass(frozen=True)
class _StepCalls:
    """Calls of one step."""

    writing: float
    """Calls that write and finalize memories."""
    answering: float
    """Calls that answer the questions about these memories, at most."""


def _plan_steps(
    settings: TrainingSettings,
    answer_tokens: int,
    trainset: Sequence[dspy.Example],
    mean_work: MeanWork,
) -> _PlannedSteps:
    """Return how many steps a training takes, and their calls.

    Args:
        settings: How the model is trained.
        answer_tokens: The most tokens of a completion.
        trainset: The questions to learn from.
        mean_work: What writing and answering take.
    """
    longest_history = max(len(example.history) for example in trainset)
    horizons = settings.curriculum.stages(longest_history)
    step_calls = _mean_step_calls(settings, horizons, trainset, mean_work)
    step_count = _step_count(settings.curriculum, len(horizons), step_calls.writing, answer_tokens)

    # The low end counts no answers: a memory is only asked what its sessions answer, which may be
    # none of the questions.
    fewest_calls_per_step = step_calls.writing * WRITING_SPREAD.low
    most_calls_per_step = step_calls.writing * WRITING_SPREAD.high + step_calls.answering
    calls = Range(step_count.low * fewest_calls_per_step, step_count.high * most_calls_per_step)
    return _PlannedSteps(step_count, calls)


def _step_count(
    curriculum: Curriculum, stage_count: int, completions_per_step: float, answer_tokens: int
) -> Range:
    """Return how many steps a training takes at least and at most.

    A stage ends after its number of steps, or when its share of the budget of generated tokens is
    used up. Either of these limits may be missing. All stages have equal shares of the budget.

    Args:
        curriculum: The steps of each stage, and the budget of all stages in `tokens`.
        stage_count: How many stages there are.
        completions_per_step: How many completions are generated in a step, as a mean.
        answer_tokens: The most tokens of a completion.
    """
    steps_without_budget = _steps_without_budget(curriculum, stage_count)
    token_budget = curriculum.tokens
    if token_budget is None:
        return Range(steps_without_budget, steps_without_budget)

    # At least: every completion is as long as it may be, and the budget is soon used up.
    most_tokens_per_step = completions_per_step * answer_tokens
    fewest_in_budget = token_budget / most_tokens_per_step

    # At most: every completion is short. A step may begin when its stage has hardly any tokens
    # left, and go beyond the share. So each stage may have one more step.
    fewest_tokens_per_step = completions_per_step * SHORTEST_COMPLETION
    most_in_budget = token_budget / fewest_tokens_per_step + stage_count

    return Range(
        min(steps_without_budget, fewest_in_budget),
        min(steps_without_budget, most_in_budget),
    )


def _steps_without_budget(curriculum: Curriculum, stage_count: int) -> float:
    """Return the steps of all stages; infinite if nothing but the budget of tokens ends them."""
    total = 0.0
    for stage in range(stage_count):
        steps = curriculum.steps_of(stage)
        if steps is None:
            return float("inf")
        total += steps
    return total


def _mean_step_calls(
    settings: TrainingSettings,
    horizons: Sequence[int],
    trainset: Sequence[dspy.Example],
    mean_work: MeanWork,
) -> _StepCalls:
    """Return the calls of a step of the training, as a weighted mean over all stages.

    Args:
        settings: How many rollouts and reruns a step has.
        horizons: How many sessions of a conversation are written in each stage.
        trainset: The questions to learn from.
        mean_work: What writing and answering take.
    """
    questions = questions_by_history(trainset)
    conversation_count = min(settings.histories, len(questions))
    # The conversation with most questions stands for all: what answers take counts for the high
    # end of the plan only.
    most_questions = max(len(examples) for examples in questions.values())

    writing = 0.0
    answering = 0.0
    for stage, horizon in enumerate(horizons):
        weight = _stage_weight(settings.curriculum, stage, len(horizons))
        step_calls = _step_calls(settings, horizon, conversation_count, most_questions, mean_work)
        writing += weight * step_calls.writing
        answering += weight * step_calls.answering
    return _StepCalls(writing, answering)


def _step_calls(
    settings: TrainingSettings,
    horizon: int,
    conversation_count: int,
    question_count: int,
    mean_work: MeanWork,
) -> _StepCalls:
    """Return the calls of a step of one stage.

    A rollout writes the first sessions of a conversation, up to the horizon. A rerun writes one of
    these sessions once more. Both end with a memory, which is finalized and asked questions.

    Args:
        settings: How many rollouts and reruns a step has, and how many questions each is asked.
        horizon: How many sessions of a conversation are written.
        conversation_count: How many conversations a step has.
        question_count: How many questions there are about a conversation.
        mean_work: What writing and answering take.
    """
    rollouts = conversation_count * settings.num_rollouts
    reruns = _mean_reruns(settings, conversation_count * horizon)

    written_sessions = rollouts * horizon + reruns
    memories = rollouts + reruns
    writing_sessions = mean_work.writing.times(written_sessions)
    finalizing = mean_work.finalizing.times(memories)

    # Rollouts and reruns have limits of their own for how many questions they are asked.
    questions_per_rollout = min(settings.reward.questions, question_count)
    questions_per_rerun = min(settings.reward.local_questions, question_count)
    questions = rollouts * questions_per_rollout + reruns * questions_per_rerun
    return _StepCalls(
        writing=writing_sessions.calls + finalizing.calls,
        answering=mean_work.answering.times(questions).calls,
    )


def _stage_weight(curriculum: Curriculum, stage: int, stage_count: int) -> float:
    """Return the share of all steps that a stage has; stages are alike if a budget ends them."""
    steps = curriculum.steps_of(stage)
    if steps is None:
        return 1 / stage_count
    return steps / _steps_without_budget(curriculum, stage_count)


def _mean_reruns(settings: TrainingSettings, session_count: int) -> float:
    """Return how many reruns a step with so many sessions has on average.

    A share of `local_fraction` of the sessions, drawn at random, are written `local_n` times again.
    The objective "grpo" has no reruns.
    """
    if settings.objective == "grpo":
        return 0.0
    return session_count * settings.local_fraction * settings.local_n


def _recorded_rate(lm: str) -> float | None:
    """Return the completions a second of the last training of a model in the results folder.

    The time of a step includes that of updating the weights. None if no training of the model is
    there.
    """
    # Names of runs begin with their date, so the last run comes first.
    for journal in sorted(results_folder().glob(f"*/training/{FILE}"), reverse=True):
        run_folder = RunFolder(journal.parent.parent)
        if run_folder.read()["settings"].get("lm") != lm:
            continue

        completions = seconds = 0.0
        for row in read_json(journal)["rows"]:
            # The row of a validation has no completions to train on.
            if "completions" in row:
                completions += row["completions"]
                seconds += row["seconds"]
        if seconds:
            return completions / seconds
    return None


def _gpu_memory(
    config: RunConfig, training: TrainingConfig, mean_work: MeanWork
) -> tuple[DeviceUse, ...]:
    """Return the memory that a training and its servers take on each GPU.

    The result is empty if the shape of the model is unknown.
    """
    shape = _trained_shape(config.models.task.name)
    if shape is None:
        return ()

    trainer = Reinforcement.parse(training.trainer_settings)
    uses_vllm = bool(trainer.trl.get("use_vllm"))
    colocated_share = _colocated_share(trainer)
    training_memory = TrainingMemory(
        shape,
        gpus=training.train_gpus or started_processes(),
        sharded=bool(trainer.trl.get("fsdp")),
        rows=trainer.micro_batch_size,
        tokens=_estimate_longest_sequence(training, mean_work),
        lora=training.lora,
        has_reference=trainer.beta > 0,
        is_checkpointed=trainer.gradient_checkpointing,
        colocated=colocated_share or 0.0,
        capacity=training.gpu_memory,
    )
    devices = [training_memory.use()]
    # vLLM samples either on a share of each training GPU, or on GPUs of its own.
    if uses_vllm and colocated_share is None:
        devices.append(_sampling_server(training, shape))
    if training.answer_lm and training.reader_gpus:
        devices.append(_answering_server(training.answer_lm, training.reader_gpus, training))
    return tuple(devices)


def _colocated_share(trainer: Reinforcement) -> float | None:
    """Return the share of each training GPU that vLLM samples on.

    None if vLLM is not used, or has GPUs of its own. What the settings leave out is as in TRL.
    """
    arguments = trainer.trl
    if not arguments.get("use_vllm") or arguments.get("vllm_mode", "colocate") != "colocate":
        return None
    return float(arguments.get("vllm_gpu_memory_utilization", COLOCATED_SHARE))


def _trained_shape(lm: str) -> ModelShape | None:
    """Return the shape of the model that is trained; None if it is not known."""
    if not is_local(lm) or lm == TINY:
        return None
    return model_shape(lm.removeprefix(LOCAL))


def _estimate_longest_sequence(training: TrainingConfig, mean_work: MeanWork) -> int:
    """Return an estimate of the tokens of the longest prompt with its completion.

    Only calls that write are trained on. Prompts differ, so the longest one is assumed to be twice
    as long as a mean call that writes. The completion may have `answer_tokens`.
    """
    mean_tokens_per_call = 0.0
    if mean_work.writing.calls:
        mean_tokens_per_call = mean_work.writing.tokens / mean_work.writing.calls
    return int(2 * mean_tokens_per_call) + training.answer_tokens


def _sampling_server(training: TrainingConfig, shape: ModelShape) -> DeviceUse:
    """Return the memory of the server that samples: each of its GPUs has the whole model."""
    gigabytes = shape.parameters * HALF_BYTES / GIGABYTE
    return vllm_use("sampling", training.sampling_gpus or 1, gigabytes, training.gpu_memory)


def _answering_server(lm: str, gpus: int, training: TrainingConfig) -> DeviceUse:
    """Return the memory of the server that answers for rewards: its GPUs share the model."""
    gigabytes = reader_gigabytes(lm)
    gigabytes_of_gpu = None if gigabytes is None else gigabytes / gpus
    return vllm_use("answers for rewards", gpus, gigabytes_of_gpu, training.gpu_memory)
