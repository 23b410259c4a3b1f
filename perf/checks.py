"""Simulate checks, and count how many are red: `mempiler check` in 200 CI jobs.

Turn RAG answers questions about conversations that are made here. Searching, writing and prompts
are real. The model is scripted: it obeys the prompt, and gives the line's own words if it finds
the answer there. Each version of the program is scored once on a pool of questions. Every check
then draws conversations from the pool, and adds the chance of a model that samples its answers: on
both sides one answer in ten turns out otherwise.

Usage:
    $ python perf/checks.py                     # minutes
    $ python perf/checks.py --checks 40

Sample output:
    of 200 checks, 200 questions about 20 conversations      score     red
    the same program                                         0.990    2.5%
    k = 5                                                    0.788   97.0%

Every line is a version of the program that is checked against the first one:
    the same program          no regression: at most 5 % may be red
    k = 5                     recalls 5 turns in the place of 10
    no rule of brevity        its prompt lost the rule to give only the answer itself
    no rule of wording        its prompt lost the rule to use the words of the line
    every fifth turn lost     its writer drops every fifth turn

Columns:
    score    mean score on the whole pool, before chance is added
    red      the share of checks that fail; of a regression at least 90 % should

How to read it:
    The shares hold for losses of this size, and for this number of questions: a check prints the
    smallest loss that it shows. The draws have a seed, so the same version gives the same figures.
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
"""The share of answers that turn out otherwise by chance."""

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
"""How the model calls some places if it may choose the words."""
BREVITY_RULE = "Give only the answer itself"
"""Stands in the line of the prompt that asks for a short answer."""
WORDING_RULE = "give it in the same words"
"""Stands in the line of the prompt that asks for the words of the conversation."""


class ObedientReader:
    """A model that answers with what stands in its prompt, as the prompt wants it.

    It looks for a line that says where the thing of the question is, and names the place. If the
    prompt does not ask for a short answer, it repeats the whole line for every second thing. If
    the prompt does not ask for the same words, it calls two of eight places by other ones.
    """

    supports_function_calling = False
    supports_reasoning = False
    supports_response_schema = False
    supported_params = ("temperature", "max_tokens")

    def complete(self, request: Any) -> Any:
        """Answer a request."""
        from dspy.lm15 import Message, Response, Usage

        system = request.system if isinstance(request.system, str) else str(request.system)
        user = "\n".join(message.text for message in request.messages if message.role == "user")
        text = f"[[ ## answer ## ]]\n{self._answer(system, user)}\n\n[[ ## completed ## ]]"
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant(text),
            finish_reason="stop",
            usage=Usage(input_tokens=len(user) // 4, output_tokens=len(text) // 4),
        )

    def _answer(self, system: str, user: str) -> str:
        """Return the answer to the question in a prompt."""
        question = re.search(r"Where did I put the (\w+)\?", user)
        assert question is not None, "all questions have this form"
        thing = question[1]
        line = re.search(rf"the old {thing} now stands in the (\w+)[^\n]*", user)
        if line is None:
            return "I do not know"
        is_talkative = THINGS.index(thing) % 2 == 1
        if BREVITY_RULE not in system and is_talkative:
            return line[0]
        place = line[1]
        return place if WORDING_RULE in system else OTHER_WORDS.get(place, place)

    def __deepcopy__(self, memo: object) -> ObedientReader:
        # DSPy copies the model with a program.
        return self


class ForgetfulWriter(TurnWriter):
    """Keeps every turn but each fifth one."""

    def update(self, memory: TurnMemory, item: Item, extraction: None = None) -> Update[TurnMemory]:
        """Return the memory with the turns of an item that are kept."""
        kept_turns = [turn for number, turn in enumerate(item.turns, start=1) if number % 5]
        return Update(memory.with_session(item.replace(turns=tuple(kept_turns))))


class ForgetfulRAG(TurnRAG):
    """Turn RAG with a writer that drops every fifth turn."""

    def __init__(self) -> None:
        super().__init__()
        self.writer = ForgetfulWriter()


@dataclass(frozen=True)
class Version:
    """A version of the program, and what it scores on the pool."""

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
    """Score each version of the program on a pool of so many conversations.

    The first version is the program in use.
    """
    benchmark = Benchmark.from_examples(testset=list(make_questions(pool_size)), metric="f1")
    lm = MeteredLM("scripted/reader", Metering(), engine=ObedientReader(), cache=False)
    versions: list[Version] = []
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
        for name, program in programs().items():
            evaluation = score_questions(
                program, benchmark, benchmark.examples, Meter(), threads=1, phase=name
            )
            versions.append(Version(name, evaluation))
    return versions


def programs() -> Mapping[str, MemoryProgram]:
    """Return the versions of the program by name; the first one is the program in use."""
    in_use = build("turn-rag", k=10)
    forgetful = build("turn-rag", k=10)
    return {
        "the same program": in_use,
        "k = 5": build("turn-rag", k=5),
        "no rule of brevity": without_rule(BREVITY_RULE),
        "no rule of wording": without_rule(WORDING_RULE),
        "every fifth turn lost": MemoryProgram(ForgetfulRAG(), forgetful.task),
    }


def without_rule(rule: str) -> MemoryProgram:
    """Return the program in use without one line of the prompt that answers."""
    program = build("turn-rag", k=10)
    (predictor,) = program.task.predictors()
    lines = predictor.signature.instructions.splitlines()
    kept_lines = [line for line in lines if rule not in line]
    assert len(kept_lines) == len(lines) - 1, "the rule stands in one line"
    predictor.signature = predictor.signature.with_instructions("\n".join(kept_lines))
    return program


def make_questions(conversations: int) -> Iterator[dspy.Example]:
    """Yield questions about conversations, where people say once where a thing is.

    They speak of each thing several times. The more often, the later in the hits of a search comes
    the line that has the answer: for about a fifth of the things it is the 6th to 10th line, and
    for one in twenty none of the first ten.
    """
    for number in range(conversations):
        rng = random.Random(number)
        things = rng.sample(THINGS, QUESTIONS_PER_CONVERSATION)
        places = {thing: rng.choice(PLACES) for thing in things}
        messages: list[dict[str, str]] = []
        for thing in things:
            for _ in range(_mentions(rng)):
                talk = rng.choice(SMALL_TALK).format(thing=thing)
                messages.append({"role": "user", "content": talk})
            fact = (
                f"After a long day of tidying up with my sister and her two noisy dogs"
                f" the old {thing} now stands in the {places[thing]}."
            )
            messages.append({"role": "user", "content": fact})
        rng.shuffle(messages)
        for thing in things:
            yield dspy.Example(
                id=f"{number}:{thing}",
                user=f"user {number}",
                history=messages,
                question=f"Where did I put the {thing}?",
                answer=places[thing],
            )


def _mentions(rng: random.Random) -> int:
    """Return how often people speak of a thing without saying where it is."""
    chance = rng.random()
    if chance < 0.7:
        return rng.randint(0, 3)
    if chance < 0.95:
        return rng.randint(5, 8)
    return rng.randint(11, 14)


def count_red(in_use: Version, checked: Version, checks: int) -> int:
    """Return how many of so many checks of a version against the one in use are red."""
    return sum(is_red(in_use, checked, seed) for seed in range(checks))


def is_red(in_use: Version, checked: Version, seed: int) -> bool:
    """Draw the questions of one check and the chance of the answers; return whether it fails."""
    rng = np.random.default_rng(seed)
    users = sorted({row.group for row in in_use.evaluation.rows})
    drawn_users = set(rng.choice(users, size=CONVERSATIONS, replace=False).tolist())
    reference = _with_chance(in_use.evaluation, drawn_users, rng)
    candidate = _with_chance(checked.evaluation, drawn_users, rng)

    row = CheckRow(checked.name, "scripted", candidate, is_decisive=True)
    return bool(compare_with_reference(row, reference).problems)


def _with_chance(evaluation: Evaluation, users: set[str], rng: np.random.Generator) -> Evaluation:
    """Return the rows of some users, of which a share turns out otherwise."""
    rows: list[Row] = []
    for row in evaluation.rows:
        if row.group not in users:
            continue
        score = 1 - row.score if rng.random() < NOISE else row.score
        rows.append(row.model_copy(update={"score": score}))
    return evaluation.model_copy(update={"rows": tuple(rows)})


if __name__ == "__main__":
    main()
