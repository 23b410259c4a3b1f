"""What each way of tuning does to a pretrained model on memory-env: from no demonstration to LoGo-GRPO.

    zero-shot ── few-shot ── compiled        the model as it is, prompts with all rules
    SFT ──┬── GRPO                           LoRA adapters, prompts of one line (`CompactAdapter(instructions=False)`)
          └── LoGo-GRPO

    few-shot   demonstrations of a perfect writer in the prompts
    compiled   the best of some draws of such demonstrations by the dev users (random search)
    SFT        imitates an imperfect writer, as the warm-up of `local:tiny` does: something is left to gain
    GRPO       whole trajectories; LoGo-GRPO: half of the generated tokens go to local groups; as many tokens for both

Every rung's scores are of the same users, which nothing else saw, greedy and sampled. A finished rung is a file in the
folder of results, and is not run again; a training that was killed goes on at its last checkpoint.

Usage:
    $ python perf/pretrained.py --out results                      # runs what is missing
    $ python perf/pretrained.py --out results --only zero-shot SFT
    $ python perf/pretrained.py --out results --write page.md      # the table of what is there
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy
from mempiler.data.memory_env.benchmark import MemoryEnv
from mempiler.data.synthesis.memory_env import Conversation
from mempiler.data.synthesis.memory_teacher import teach_facts, teach_operations
from mempiler.engines.embedders import embedder
from mempiler.engines.local import sft
from mempiler.engines.local.capture import capture
from mempiler.engines.local.engine import local_lm
from mempiler.engines.local.model import LocalModel
from mempiler.optimizers.demonstrations import UNSEEN, demonstrate
from mempiler.optimizers.logo_grpo.curriculum import Curriculum
from mempiler.optimizers.logo_grpo.policy import PolicyScore, score_policy
from mempiler.optimizers.logo_grpo.settings import TrainingSettings
from mempiler.optimizers.logo_grpo.teleprompter import LoGoGRPO
from mempiler.programs.catalog import build
from mempiler.programs.compact_adapter import CompactAdapter
from mempiler.programs.fold import PlainSteps, fold
from mempiler.programs.gather import in_order
from mempiler.programs.memory_r2.method import MemoryR2
from mempiler.programs.program import MemoryProgram
from mempiler.runs.course import DAPO
from mempiler.runs.statistics import interval, paired

ANSWER = 80
"""Tokens of two operations, with room: what is longer is cut."""
RUNGS = ("zero-shot", "few-shot", "compiled", "SFT", "GRPO", "LoGo-GRPO")
BEFORE = {"few-shot": "zero-shot", "compiled": "zero-shot", "SFT": "zero-shot", "GRPO": "SFT", "LoGo-GRPO": "SFT"}
"""What a rung begins from, and is compared with."""


class Ladder:
    """All rungs of one model."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen, self.out = chosen, chosen.out
        self.benchmark = MemoryEnv.load(users=chosen.users, sessions=chosen.sessions, seed=chosen.seed)
        train, dev, test = self.benchmark.fixed_split()
        self.parts = {
            name: [each for each in self.benchmark.examples if each.history.id in ids]
            for name, ids in (("train", train), ("dev", dev), ("test", test))
        }

    def program(self) -> MemoryProgram:
        """Memory-R2 as memory-env has it, but with both turns of a session in one call, without demonstrations."""
        return build(
            "memory-r2", self.benchmark.task, embedder(), **{**MemoryR2.preset("memory-env"), "chunk_turns": 2}
        )

    def model(self, folder: Path | None = None, adapted: bool = False) -> LocalModel:
        """The model that is asked for, or the one in a folder, with a new adapter to train if wanted."""
        chosen = self.chosen
        lora = {"r": chosen.lora} if adapted else None
        name = str(folder or chosen.model)
        return LocalModel.load(name, lora=lora, threads=chosen.threads, seed=chosen.seed, dtype=chosen.dtype)

    def lm(self, model: LocalModel) -> Any:
        """An LM over it."""
        return local_lm(model, max_tokens=ANSWER, seed=self.chosen.seed)

    def scored(self, program: MemoryProgram, lm: Any, rules: bool, part: str, heat: float, samples: int) -> PolicyScore:
        """The scores of a part's users."""
        with dspy.context(adapter=CompactAdapter(instructions=rules), warn_on_type_mismatch=False):
            return score_policy(
                program, self.parts[part], self.metric, lm, heat, part, capture=capture, samples=samples
            )

    def metric(self, example: dspy.Example, prediction: dspy.Prediction) -> float:
        """Exact match."""
        return float(self.benchmark.score(example, prediction).value)

    def run(self, rung: str) -> dict[str, Any]:
        """Tunes and scores."""
        began = time.perf_counter()
        program, model, told = getattr(self, "_" + rung.replace("-", "_").lower())()
        tuned = time.perf_counter() - began
        lm, rules = self.lm(model), rung not in ("SFT", "GRPO", "LoGo-GRPO")
        found: dict[str, Any] = {"rung": rung, "told": told, "settings": _settings(self.chosen), "tuning_s": tuned}
        for name, heat, samples in (("greedy", 0.0, 1), ("sampled", 1.0, self.chosen.samples)):
            score = self.scored(program, lm, rules, "test", heat, samples)
            found[name] = {
                "scores": score.scores,
                "users": score.groups,
                "malformed": score.format_failures,
                "tokens": score.tokens,
            }
        return found | {"scoring_s": time.perf_counter() - began - tuned}

    def _zero_shot(self) -> tuple[MemoryProgram, LocalModel, str]:
        return self.program(), self.model(), ""

    def _few_shot(self) -> tuple[MemoryProgram, LocalModel, str]:
        return self._shown(0), self.model(), f"{self.chosen.demos} demonstrations a predictor"

    def _compiled(self) -> tuple[MemoryProgram, LocalModel, str]:
        model = self.model()
        lm, tried = self.lm(model), [(0.0, -1, self.program())]
        for draw in range(self.chosen.draws):
            program = self._shown(draw)
            tried.append((self.scored(program, lm, True, "dev", 0.0, 1).score, draw, program))
        best = max(tried[1:], key=lambda each: each[0])
        return best[2], model, "dev: " + ", ".join(f"{score:.3f}" for score, _, _ in tried[1:])

    def _shown(self, draw: int) -> MemoryProgram:
        """The program with one draw of demonstrations."""
        program, rng = self.program(), random.Random(f"{self.chosen.seed} {draw} demonstrations")
        for name, examples in shown(program, self.chosen.taught, self.chosen.sessions, self.chosen.seed).items():
            predictor: Any = getattr(program.method.writer, name)
            predictor.demos = rng.sample(examples, self.chosen.demos)
        return program

    def _sft(self) -> tuple[MemoryProgram, LocalModel, str]:
        program, chosen = self.program(), self.chosen
        folder = self.out / "sft"
        if not (folder / "config.json").is_file():
            examples = demonstrate(
                program.method,  # pyright: ignore[reportArgumentType]  # it is Memory-R2
                CompactAdapter(instructions=False),
                chosen.taught,
                chosen.sessions,
                seed=2 * chosen.seed + 1,
            )
            model = self.model(adapted=True)
            fit = sft.fit(model, examples, steps=chosen.sft_steps, learning_rate=chosen.sft_rate, batch=16, seed=0)
            model.save(folder.with_suffix(".partial"), merge=True)
            folder.with_suffix(".partial").rename(folder)
            (self.out / "sft_losses.json").write_text(json.dumps(fit.losses), encoding="utf-8")
        return program, self.model(folder), f"{chosen.sft_steps} steps of 16 on {chosen.taught} users"

    def _grpo(self) -> tuple[MemoryProgram, LocalModel, str]:
        return self._reinforced("grpo", 2 * self.chosen.rollouts)

    def _logo_grpo(self) -> tuple[MemoryProgram, LocalModel, str]:
        return self._reinforced("logo", self.chosen.rollouts)

    def _reinforced(self, objective: Any, rollouts: int) -> tuple[MemoryProgram, LocalModel, str]:
        self._sft()
        chosen, program = self.chosen, self.program()
        model = self.model(self.out / "sft", adapted=True)
        settings = TrainingSettings(
            objective=objective,
            num_rollouts=rollouts,
            local_n=self.chosen.rollouts,
            local_fraction=1.0,
            histories=1,
            session_reward="trajectory",
            samples=1,
            validate_every=chosen.validate_every,
            seed=chosen.seed,
            curriculum=Curriculum((chosen.horizon,), steps=None, tokens=chosen.tokens),
        )
        kwargs = {"learning_rate": chosen.rate, "beta": 0.02, "seed": chosen.seed, **DAPO}
        folder = self.out / f"{objective}-training"
        asked = self.benchmark.questions_after
        teleprompter = LoGoGRPO(self.metric, settings, kwargs, asked, None, folder, capture, _tell)
        with dspy.context(lm=self.lm(model), adapter=CompactAdapter(instructions=False), warn_on_type_mismatch=False):
            teleprompter.compile(program, trainset=self.parts["train"], valset=self.parts["dev"])
        done = teleprompter.progress
        best = done.best.step if done.best else None
        return program, model, f"{done.step} steps, {done.tokens:,} tokens, weights of step {best}"


def shown(program: MemoryProgram, users: int, sessions: int, seed: int) -> dict[str, list[dspy.Example]]:
    """Calls of both writing predictors as a perfect writer answers them: fields, for demonstrations in prompts."""
    rng, writer = random.Random(f"shown {seed}"), copy.deepcopy(program.method.writer)
    found: dict[str, list[dspy.Example]] = {"extract": [], "manage": []}

    def taught(name: str, answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Callable[..., dspy.Prediction]:
        def call(**inputs: Any) -> dspy.Prediction:
            outputs = answer(inputs)
            found[name].append(dspy.Example(**inputs, **outputs).with_inputs(*inputs))
            return dspy.Prediction(**outputs)

        return call

    answers: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
        "extract": lambda given: {"facts": teach_facts(given["dialogue"], rng)},
        "manage": lambda given: {"operations": teach_operations(given["memories"], given["new_facts"], rng)},
    }
    for name, answer in answers.items():
        object.__setattr__(writer, name, taught(name, answer))
    for number in range(users):
        memory = writer.Memory()
        with in_order():
            for item in Conversation.make(UNSEEN + 2 * seed, number, sessions).history.items:
                memory = fold([item], memory, PlainSteps(writer), settle=False)
    return found


def rungs(out: Path) -> list[dict[str, Any]]:
    """The rungs that a folder of results holds."""
    return [json.loads(path.read_text()) for rung in RUNGS if (path := out / f"{rung}.json").is_file()]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rungs as Markdown."""
    by = {row["rung"]: row for row in rows}
    lines = [
        "| rung | greedy [95 %] | against its start | sampled [95 %] | against its start | unreadable | seconds | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        before = by.get(BEFORE.get(row["rung"], ""))
        cells = [cell for kind in ("greedy", "sampled") for cell in _cells(row[kind], before and before[kind])]
        lost = f"{row['greedy']['malformed']:.1%} / {row['sampled']['malformed']:.1%}"
        seconds = f"{row['tuning_s']:.0f} + {row['scoring_s']:.0f}"
        lines.append(f"| {row['rung']} | {' | '.join(cells)} | {lost} | {seconds} | {row['told']} |")
    return "\n".join(lines) + "\n"


def _cells(found: Mapping[str, Any], before: Mapping[str, Any] | None) -> tuple[str, str]:
    span = interval(found["scores"], found["users"])
    mean = sum(found["scores"]) / len(found["scores"])
    score = f"{mean:.3f}" + (f" [{span.low:.3f}, {span.high:.3f}]" if span else "")
    if before is None:
        return score, ""
    gain = paired(found["scores"], before["scores"], found["users"])
    ends = f" [{gain.interval.low:+.3f}, {gain.interval.high:+.3f}]" if gain.interval else ""
    return score, f"{gain.mean:+.3f}{ends}"


def _settings(chosen: argparse.Namespace) -> dict[str, Any]:
    return {name: value for name, value in vars(chosen).items() if name not in ("out", "only", "write", "threads")}


def _tell(row: Mapping[str, Any]) -> None:
    names = ("step", "reward", "score", "format_failures", "tokens", "validation", "validation_greedy")
    print(" ", {name: round(row[name], 3) for name in names if name in row}, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="A pretrained model from no demonstration to LoGo-GRPO.")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--only", nargs="+", choices=RUNGS, default=RUNGS)
    parser.add_argument("--write", type=Path, help="write the table of what is there, and run nothing")
    parser.add_argument("--model", default="smollm2", help="as after local:")
    parser.add_argument("--dtype", default="float32", help="float32 or bfloat16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lora", type=int, default=16)
    numbers = {"users": 50, "sessions": 4, "seed": 0, "samples": 1, "demos": 4, "draws": 3, "taught": 60}
    numbers |= {"sft-steps": 40, "rollouts": 4, "horizon": 4, "tokens": 18_000, "validate-every": 4}
    for name, number in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--sft-rate", type=float, default=3e-4)
    parser.add_argument("--rate", type=float, default=2e-4)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.write is None:
        ladder = Ladder(chosen)
        for rung in chosen.only:
            path = chosen.out / f"{rung}.json"
            if not path.is_file():
                print(time.strftime("%H:%M"), rung, flush=True)
                path.write_text(json.dumps(ladder.run(rung)), encoding="utf-8")
    told = table(rungs(chosen.out))
    print(told) if chosen.write is None else chosen.write.write_text(told, encoding="utf-8")


if __name__ == "__main__":
    main()
