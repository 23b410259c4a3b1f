"""Exported environments under the packages they are for: rewards there, and the same rewards computed directly.

    verifiers   `vf-eval` plays every history of the export against a server of this process; its traces hold rewards
    trl         `GRPOTrainer` asks a random model of a few thousand weights; the reward function says what it was given

The directly computed reward is that of a plain rollout against the same server (verifiers), or of LoGo-GRPO's rerun of
one session (trl). The server's answers are a function of the prompt alone: the offline engine's, and now and then
something that cannot be read. Every benchmark with a metric that asks no judge is exported, on its sample.

Install one of the packages and Mempiler in an environment of its own first. The exit code is 1 where a reward differs.

Usage:
    $ python perf/exports.py verifiers
    $ python perf/exports.py trl --only memory-env
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENAI_API_KEY", "none")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import dspy
from mempiler.data.catalog import BENCHMARKS, benchmark_class
from mempiler.engines.models import language_model
from mempiler.errors import MempilerError
from mempiler.optimizers.logo_grpo.reward import answer, chosen, penalty, reward
from mempiler.optimizers.logo_grpo.rollout import rerun, roll_out, single_attempt, together
from mempiler.runs.exports.environment import Environment, Export, kept
from mempiler.runs.exports.writing import write
from mempiler.runs.setup import Setup
from stub_server import StubServer, offline_answer

CLOSE = 1e-9


def careless(body: dict[str, Any]) -> str:
    """The offline engine's answer, or for some prompts one that cannot be read."""
    text = json.dumps(body["messages"])
    return "I would rather not say." if zlib.crc32(text.encode()) % 7 == 0 else offline_answer(body)


def exports(kind: Any, method: str, only: str | None, out: Path) -> Iterator[tuple[str, Environment, Path, str]]:
    """Every benchmark's export: its name, the environment, the folder, the name of its package."""
    for name in BENCHMARKS:
        if only not in (None, name):
            continue
        metrics = [m for m in benchmark_class(name).metrics if not benchmark_class(name).scored_by(m).asked]
        if not metrics:
            print(f"{name}: no metric without a judge")
            continue
        first = metrics[0] == next(iter(benchmark_class(name).metrics))
        options: dict[str, Any] = {} if first else {"metric": metrics[0]}
        options |= {"users": 10, "sessions": 3} if name == "memory-env" else {}
        try:
            # Samples are small: not all of them have histories in the train part.
            made = write(
                kind,
                Export(method=method, part="all", sessions=2, setup=kept(Setup(name, options=options))),
                out / name,
            )
        except MempilerError as error:
            print(f"{name}: {error}")
            continue
        inner = made.folder / made.name if kind == "verifiers" else made.folder
        yield name, Environment.open(inner / "export.json"), made.folder, made.name


def direct(environment: Environment, id: str, lm: Any) -> float:
    """The reward of a plain rollout."""
    own, past = environment.rewarded, environment.past(id)
    with dspy.context(lm=lm, adapter=single_attempt(own.program)):
        (rollout,) = together([lambda: roll_out(own.program.method.writer, past, "direct")], 1)
    costs = [penalty(call, True, own.settings) for call in rollout.calls]
    return _value(environment, id, rollout, own.settings.questions) - sum(costs) / len(costs)


def _value(environment: Environment, id: str, rollout: Any, most: int) -> float:
    own, sessions = environment.rewarded, len(rollout.history)
    asked = chosen(own.questions(environment.histories[id], sessions), most, f"0 {id} {sessions} questions")
    with dspy.context(lm=own.reader, adapter=single_attempt(own.program)):
        answered = answer(own.program, rollout.history, rollout.memory, asked, own.metric)
    return reward(answered, rollout, own.settings)


def check_verifiers(
    name: str, environment: Environment, folder: Path, package: str, most: int
) -> list[tuple[float, float]]:
    """The rewards there and here of each history that `vf-eval` played."""
    from verifiers.v1.cli.eval.main import main

    sys.path.insert(0, str(folder))
    with StubServer(answer=careless) as server, (folder / "said.txt").open("w") as said, redirect_stdout(said):
        asked = ["-n", str(most), "-r", "1", "--model", "stub", "--client.base-url", server.url]
        asked += ["--client.api-key-var", "OPENAI_API_KEY", "--no-push", "--no-rich"]
        main([package.replace("_", "-"), *asked, "-o", str(folder / "out")])
        (traces,) = (folder / "out").rglob("traces.jsonl")
        lm = language_model("openai/stub", api_base=server.url, cache=False)
        found = []
        for line in traces.read_text().splitlines():
            for trace in _traces(json.loads(line)):
                (scored,) = trace["rewards"].values()
                parents, turns = {node.get("parent") for node in trace["nodes"]}, len(trace["calls"])
                leaves = len(trace["nodes"]) - len(parents - {None})
                assert leaves == turns, f"{turns} calls, but {leaves} branches"
                found.append((scored["score"], direct(environment, trace["task"]["data"]["history"], lm)))
    return found


def _traces(record: dict[str, Any]) -> list[dict[str, Any]]:
    return record.get("traces", [record])


def check_trl(name: str, environment: Environment, folder: Path, package: str, most: int) -> list[tuple[float, float]]:
    """The rewards there and here of the rows' own completions; then one step of `GRPOTrainer` on the rows."""
    sys.path.insert(0, str(folder))
    sys.modules.pop("reward", None)
    from reward import memory

    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()][: 4 * most]
    found = []
    for row in rows:
        with dspy.context(lm=environment.model, adapter=single_attempt(environment.program)):
            writer, whole = environment.program.method.writer, environment.past(row["history"])
            (taken,) = together([lambda: roll_out(writer, whole, "direct")], 1)  # noqa: B023
            (again,) = together([lambda: rerun(writer, taken, row["session"], "local")], 1)  # noqa: B023
        call = again.calls[len(row["said"])]
        value = _value(environment, row["history"], again, environment.rewarded.settings.local_questions)
        columns = {column: [row[column]] for column in row if column != "prompt"}
        told = memory([row["prompt"]], [[{"role": "assistant", "content": call.completions[0].text}]], **columns)
        assert [dict(message) for message in call.completions[0].messages] == row["prompt"]
        found.append((told[0], value - penalty(call, True, environment.rewarded.settings)))
    _train(folder, memory)
    return found


def _train(folder: Path, memory: Any) -> None:
    """One step of TRL's trainer with the folder's rows and reward function."""
    from datasets import load_dataset
    from mempiler.engines.local.tiny import create
    from trl import GRPOConfig, GRPOTrainer

    rows = load_dataset("json", data_files=str(folder / "rows.jsonl"), split="train").select(range(2))
    seen = [(row["prompt"], "yes no maybe") for row in rows]
    create(folder / "model", seen, ["I", "would", "rather", "not"])
    heard: list[float] = []

    def reward_of(**given: Any) -> list[float]:
        heard.extend(memory(**given))
        return heard[-len(given["prompts"]) :]

    settings = GRPOConfig(
        output_dir=str(folder / "out"),
        num_generations=2,
        per_device_train_batch_size=2,
        max_completion_length=16,
        max_steps=1,
        report_to="none",
        use_cpu=True,
        save_strategy="no",
    )
    GRPOTrainer(str(folder / "model"), reward_funcs=reward_of, args=settings, train_dataset=rows).train()
    print(f"  GRPOTrainer: one step, rewards {[round(each, 3) for each in heard]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["verifiers", "trl"])
    parser.add_argument("--method", default="memory-r2")
    parser.add_argument("--only", help="one benchmark")
    parser.add_argument("--most", type=int, default=2, help="histories of each")
    given = parser.parse_args()
    worst = 0.0
    check = check_verifiers if given.kind == "verifiers" else check_trl
    with tempfile.TemporaryDirectory() as out:
        for name, environment, folder, package in exports(given.kind, given.method, given.only, Path(out)):
            found = check(name, environment, folder, package, given.most)
            off = max((abs(there - here) for there, here in found), default=float("inf"))
            worst = max(worst, off)
            shown = ", ".join(f"{there:.3f}" for there, _ in found)
            print(f"{name}: {len(found)} rewards ({shown}), largest difference {off:.1e}", flush=True)
    return int(worst > CLOSE)


if __name__ == "__main__":
    sys.exit(main())
