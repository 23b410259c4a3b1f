"""Simulate checks, and count how many are red: `mempiler check` in 200 CI jobs.

The program in use is the method turn-rag: it searches the turns of a conversation, and shows the
best `k` of them to a model, which answers. A *version* is this program with one change, for example
a smaller `k`. Each version answers all questions about a *pool* of 60 made-up conversations, once.
Every simulated check then draws 20 conversations from the pool, and compares the version with the
program in use on their 200 questions. A check is *red* if it fails.

The program is real: it writes, searches and builds prompts as always. Only the model is a script
(`ScriptedModel`): it does what its prompt tells it, and finds every answer that the prompt shows. A
real model sometimes answers otherwise when it is asked again. So each check turns one answer in ten
around, right to wrong or wrong to right, on both sides.

Usage:
    $ python perf/checks.py                     # about a minute
    $ python perf/checks.py --checks 40

Sample output:
    of 200 checks, 200 questions about 20 conversations      score     red
    the same program                                         0.990    2.5%
    k = 5                                                    0.788   97.0%

Every line is a version that is checked against the program in use, which has k = 10:
    the same program          no change: at most 5 % may be red
    k = 8, k = 7, k = 5       shows fewer turns to the model
    no rule of brevity        its prompt lost the rule to give only the answer itself
    no rule of wording        its prompt lost the rule to use the words of the line
    every fifth turn lost     its writer drops every fifth turn

Columns:
    score    mean score on the whole pool, before answers are turned around
    red      the share of checks that fail

How to read it:
    The shares hold for losses of this size, and for this number of questions: k = 8 loses too
    little to be noticed by 200 questions. A check prints the smallest loss that it can detect. The
    draws have a seed, so the same version gives the same figures.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dspy
import numpy as np
from mempiler import build
from mempiler.data.benchmark import Benchmark
from mempiler.engines.meter import Meter
from mempiler.engines.metered_lm import MeteredLM, Metering
from mempiler.memory.memory import TurnMemory
from mempiler.programs.baselines.turn_rag import TurnRAG, TurnWriter
from mempiler.programs.program import MemoryProgram
from mempiler.programs.writer import Update
from mempiler.records import Item
from mempiler.runs.check_result import CheckRow, compare_with_reference
from mempiler.runs.results import Evaluation
from mempiler.runs.rows import Row
from mempiler.runs.scoring import score_questions

CHECKS = 200
CONVERSATIONS = 20
"""Conversations that a check asks about."""
QUESTIONS_PER_CONVERSATION = 10
POOL_SIZE = 60
"""Conversations in the pool."""
NOISE = 0.1
"""The share of answers that are turned around at random."""

THINGS = (
    "anchor", "basket", "candle", "drum", "easel", "flute", "globe", "hammer", "inkwell", "jacket",
    "kettle", "ladder", "mirror", "needle", "oven", "pillow", "quilt", "razor", "saddle", "teapot",
)  # fmt: skip
PLACES = ("cellar", "attic", "garage", "kitchen", "garden", "hallway", "office", "stable")
SMALL_TALK = (
    "I polished the {thing} this morning.",
    "Somebody asked me about the {thing} again.",
    "The {thing} was a present.",
    "A {thing} like that is rare.",
)
OTHER_WORDS = {"cellar": "basement", "attic": "loft"}
"""What the scripted model calls some places if its prompt lets it choose the words."""
BREVITY_RULE = "Give only the answer itself"
"""A part of the line of the prompt that asks for a short answer."""
WORDING_RULE = "give it in the same words"
"""A part of the line of the prompt that asks for the words of the conversation."""
CHARACTERS_PER_TOKEN = 4
"""A rule of thumb for English text. Nothing depends on these token counts."""


class ScriptedModel:
    """A fake language model that does what its prompt tells it; a program with rules, no network.

    It looks in its prompt for the line that says where the thing of the question is, and answers
    with the place. Where the prompt lost a rule, it behaves as a real model might:

    - Without the rule of brevity, it repeats the whole line for every second thing.
    - Without the rule of wording, it calls two of the eight places by other words.
    """

    # What DSPy asks every model about its abilities.
    supports_function_calling = False
    supports_reasoning = False
    supports_response_schema = False
    supported_params = ("temperature", "max_tokens")

    def complete(self, request: Any) -> Any:
        """Answer a request, as DSPy calls every engine of a model."""
        from dspy.lm15 import Message, Response, Usage

        system_prompt = str(request.system)
        user_prompt = "\n".join(
            message.text for message in request.messages if message.role == "user"
        )
        answer = self._answer(system_prompt, user_prompt)
        # DSPy's ChatAdapter reads the output field `answer` between these two marks.
        reply = f"[[ ## answer ## ]]\n{answer}\n\n[[ ## completed ## ]]"
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant(reply),
            finish_reason="stop",
            usage=Usage(
                input_tokens=len(user_prompt) // CHARACTERS_PER_TOKEN,
                output_tokens=len(reply) // CHARACTERS_PER_TOKEN,
            ),
        )

    def _answer(self, system_prompt: str, user_prompt: str) -> str:
        """Return the answer to the question in a prompt."""
        question = re.search(r"Where did I put the (\w+)\?", user_prompt)
        assert question is not None, "all questions have this form"
        thing = question[1]
        line = re.search(rf"the old {thing} now stands in the (\w+)[^\n]*", user_prompt)
        if line is None:
            return "I do not know"

        is_second_thing = THINGS.index(thing) % 2 == 1
        if BREVITY_RULE not in system_prompt and is_second_thing:
            return line[0]
        place = line[1]
        if WORDING_RULE not in system_prompt:
            return OTHER_WORDS.get(place, place)
        return place

    def __deepcopy__(self, memo: object) -> ScriptedModel:
        # DSPy copies a program together with its model, but this model has no state to copy.
        return self


class ForgetfulWriter(TurnWriter):
    """A writer with a bug: it drops every fifth turn."""

    def update(self, memory: TurnMemory, item: Item, extraction: None = None) -> Update[TurnMemory]:
        """Add a session to the memory, without its fifth turn, its tenth, and so on."""
        kept_turns = [turn for number, turn in enumerate(item.turns, start=1) if number % 5]
        return Update(memory.with_session(item.replace(turns=tuple(kept_turns))))


class ForgetfulRAG(TurnRAG):
    """Turn RAG with a writer that drops every fifth turn."""

    def __init__(self) -> None:
        super().__init__()
        self.writer = ForgetfulWriter()


@dataclass(frozen=True)
class Version:
    """The program with one change, and its answers to all questions of the pool."""

    name: str
    evaluation: Evaluation


def main() -> None:
    """Print a table: how many checks of each version are red."""
    parser = argparse.ArgumentParser(description="Simulate checks; see the file's beginning.")
    parser.add_argument("--checks", type=int, default=CHECKS, help="checks of each version")
    checks: int = parser.parse_args().checks

    questions = CONVERSATIONS * QUESTIONS_PER_CONVERSATION
    title = f"of {checks} checks, {questions} questions about {CONVERSATIONS} conversations"
    print(f"{title:56} score     red")
    versions = score_versions(POOL_SIZE)
    for version in versions:
        red_share = count_red(versions[0], version, checks) / checks
        print(f"{version.name:56} {version.evaluation.score:.3f}  {red_share:6.1%}", flush=True)


def score_versions(pool_size: int) -> list[Version]:
    """Let every version answer all questions of the pool; the program in use is the first one.

    Args:
        pool_size: How many conversations the pool has.
    """
    benchmark = Benchmark.from_examples(testset=list(make_questions(pool_size)), metric="f1")
    lm = MeteredLM("scripted/reader", Metering(), engine=ScriptedModel(), cache=False)
    versions: list[Version] = []
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
        for name, program in programs().items():
            evaluation = score_questions(
                program, benchmark, benchmark.examples, Meter(), threads=1, phase=name
            )
            versions.append(Version(name, evaluation))
    return versions


def programs() -> Mapping[str, MemoryProgram]:
    """Return all versions of the program by name; the first one is the program in use."""
    in_use = build("turn-rag", k=10)
    same_task = build("turn-rag", k=10).task
    return {
        "the same program": in_use,
        "k = 8": build("turn-rag", k=8),
        "k = 7": build("turn-rag", k=7),
        "k = 5": build("turn-rag", k=5),
        "no rule of brevity": without_rule(BREVITY_RULE),
        "no rule of wording": without_rule(WORDING_RULE),
        "every fifth turn lost": MemoryProgram(ForgetfulRAG(), same_task),
    }


def without_rule(rule: str) -> MemoryProgram:
    """Return the program in use without one line of the prompt that answers."""
    program = build("turn-rag", k=10)
    (predictor,) = program.task.predictors()
    lines = predictor.signature.instructions.splitlines()
    kept_lines = [line for line in lines if rule not in line]
    assert len(kept_lines) == len(lines) - 1, "exactly one line has the rule"
    predictor.signature = predictor.signature.with_instructions("\n".join(kept_lines))
    return program


def make_questions(conversations: int) -> Iterator[dspy.Example]:
    """Yield the questions of the pool: where did a user put each of ten things?

    In each conversation, one message says where a thing is, and others only mention it. These
    compete in the search: the more of them, the lower is the rank of the message with the answer.
    For about a fifth of the things its rank is 6 to 10, so that a program with k = 5 misses it. For
    one thing in twenty it is even lower.
    """
    for number in range(conversations):
        rng = random.Random(number)
        things = rng.sample(THINGS, QUESTIONS_PER_CONVERSATION)
        place_of_thing = {thing: rng.choice(PLACES) for thing in things}
        messages: list[dict[str, str]] = []
        for thing in things:
            for _ in range(_count_of_mentions(rng)):
                mention = rng.choice(SMALL_TALK).format(thing=thing)
                messages.append({"role": "user", "content": mention})
            # This message is longer than a mention, so the search ranks mentions before it.
            fact = (
                f"After a long day of tidying up with my sister and her two noisy dogs"
                f" the old {thing} now stands in the {place_of_thing[thing]}."
            )
            messages.append({"role": "user", "content": fact})
        rng.shuffle(messages)
        for thing in things:
            yield dspy.Example(
                id=f"{number}:{thing}",
                user=f"user {number}",
                history=messages,
                question=f"Where did I put the {thing}?",
                answer=place_of_thing[thing],
            )


def _count_of_mentions(rng: random.Random) -> int:
    """Draw how many messages mention a thing without saying where it is."""
    chance = rng.random()
    if chance < 0.7:
        # 70 % of the things: even five hits include the message with the answer.
        return rng.randint(0, 3)
    if chance < 0.95:
        # 25 %: mostly ten hits include it and five do not.
        return rng.randint(5, 8)
    # 5 %: ten hits are too few.
    return rng.randint(11, 14)


def count_red(in_use: Version, checked: Version, checks: int) -> int:
    """Return how many checks of a version against the program in use are red."""
    return sum(is_red(in_use, checked, seed) for seed in range(checks))


def is_red(in_use: Version, checked: Version, seed: int) -> bool:
    """Simulate one check: draw its conversations, turn some answers around, and compare."""
    rng = np.random.default_rng(seed)
    users = sorted({row.group for row in in_use.evaluation.rows})
    drawn_users = set(rng.choice(users, size=CONVERSATIONS, replace=False).tolist())
    reference = _with_chance(in_use.evaluation, drawn_users, rng)
    candidate = _with_chance(checked.evaluation, drawn_users, rng)

    row = CheckRow(checked.name, "scripted", candidate, is_decisive=True)
    return bool(compare_with_reference(row, reference).problems)


def _with_chance(evaluation: Evaluation, users: set[str], rng: np.random.Generator) -> Evaluation:
    """Return the answers about some users; a share of `NOISE` of them is turned around."""
    rows: list[Row] = []
    for row in evaluation.rows:
        if row.group not in users:
            continue
        score = 1 - row.score if rng.random() < NOISE else row.score
        rows.append(row.model_copy(update={"score": score}))
    return evaluation.model_copy(update={"rows": tuple(rows)})


if __name__ == "__main__":
    main()
