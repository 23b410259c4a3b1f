"""Recorded runs are replayed without any server: the same table, or one line that says which call is missing."""

import gzip
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest
from mempiler.engines.embedders import TextEmbedder
from mempiler.errors import UserError
from mempiler.runs.experiment import run_evaluate
from mempiler.runs.setup import Setup

EVALUATE = ["evaluate", "turn-rag", "--part", "test"]
LONGER = ["evaluate", "turn-rag", "--part", "train"]
COMMANDS = {
    "evaluate": EVALUATE,
    "evaluate-writing": ["evaluate", "rgmem", "--part", "test"],
    "bootstrap": ["compile", "turn-rag", "--with", "bootstrap", "--optimizer-set", "max_tries=4"],
    "copro": ["compile", "turn-rag", "--with", "copro", "--optimizer-set", "breadth=3", "--optimizer-set", "depth=1"],
    "gepa": ["compile", "turn-rag", "--with", "gepa", "--optimizer-set", "max_metric_calls=10"],
}
UNSTEADY = {"seconds", "run_id", "run", "program", "latency"}
"""Of a table: what is another time's or another folder's."""


def table(found: Any) -> Any:
    """What a command printed, without times and folders."""
    if isinstance(found, dict):
        return {name: table(value) for name, value in found.items() if name not in UNSTEADY}
    return [table(each) for each in found] if isinstance(found, list) else found


def lines_of(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another results folder, another current folder, and no key."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_replay_gives_the_table_of_the_recording_without_a_server(stub, mempiler_cli, elsewhere, name):
    server, path = stub(), elsewhere / "x.rec"
    made = mempiler_cli(server, *COMMANDS[name], "--record", str(path))
    asked = len(server.texts)
    server.die()
    played = mempiler_cli(server, *COMMANDS[name], "--replay", str(path), threads=4 if "evaluate" in name else 1)
    assert (made.code, played.code, played.err.count("mempiler:")) == (0, 0, 0)
    assert asked > 4
    assert table(played.found) == table(made.found)
    assert sum(len(line["found"]["outputs"]) for line in lines_of(path) if line["kind"] == "lm") == asked


def test_the_number_of_threads_changes_nothing(stub, mempiler_cli, elsewhere):
    server, path = stub(delay=0.002), elsewhere / "x.rec"
    words = COMMANDS["evaluate-writing"]
    made = mempiler_cli(server, *words, "--record", str(path), threads=8)
    server.die()
    assert table(mempiler_cli(server, *words, "--replay", str(path), threads=1).found) == table(made.found)


def test_a_recording_alone_says_what_was_asked(stub, mempiler_cli, elsewhere, capsys):
    from mempiler.cli import main

    server, path = stub(), elsewhere / "x.rec"
    made = mempiler_cli(server, *EVALUATE, "--adapter", "json", "--temperature", "0.3", "--record", str(path))
    server.die()
    sizes = ["--train", "8", "--dev", "4", "--test", "4"]
    main([*EVALUATE, "--on", "locomo", "--json", *sizes, "--replay", str(path)])
    captured = capsys.readouterr()
    assert table(json.loads(captured.out)) == table(made.found)
    assert f"LM: {server.model}, replayed from {path}" in captured.err


def test_what_caches_know_is_recorded_all_the_same(stub, mempiler_cli, elsewhere):
    server, path = stub(), elsewhere / "x.rec"
    plain = mempiler_cli(server, *EVALUATE)
    asked = len(server.texts)
    made = mempiler_cli(server, *EVALUATE, "--record", str(path))
    assert len(server.texts) == 2 * asked
    server.die()
    played = mempiler_cli(server, *EVALUATE, "--replay", str(path))
    assert table(plain.found) == table(made.found) == table(played.found)


@pytest.mark.parametrize(
    ("words", "sizes", "near"),
    [
        (EVALUATE, {"test": 5}, "its instructions were recorded, but not with this input"),
        ([*EVALUATE, "--set", "k=1"], {}, "its instructions were recorded, but not with this input"),
        (["evaluate", "recursive-summary", "--part", "test"], {}, "no call of it was recorded"),
        (COMMANDS["bootstrap"], {}, "its instructions were recorded, but not with this input"),
    ],
    ids=["questions", "setting", "method", "compile"],
)
def test_a_missing_call_is_one_line_and_nothing_is_asked(stub, mempiler_cli, elsewhere, words, sizes, near):
    server, path = stub(), elsewhere / "x.rec"
    assert mempiler_cli(server, *EVALUATE, "--record", str(path)).code == 0
    asked = len(server.texts)
    ran = mempiler_cli(server, *words, "--replay", str(path), **sizes)
    assert (ran.code, ran.out, len(server.texts)) == (2, "", asked)
    assert re.search(r"has no answer for a call of \S+ \(task\) that begins '\S", ran.line)
    assert f": {near}" in ran.line
    assert "recorded: mempiler evaluate turn-rag --on locomo --train 8 --dev 4 --test 4" in ran.line
    assert "--resume" not in ran.line


@pytest.mark.parametrize("name", ["evaluate", "evaluate-writing", "bootstrap", "gepa"])
def test_a_changed_prompt_is_told_and_never_scored(stub, mempiler_cli, elsewhere, monkeypatch, name):
    from mempiler.programs import predictor

    server, path = stub(), elsewhere / "x.rec"
    assert mempiler_cli(server, *COMMANDS[name], "--record", str(path)).code == 0
    asked, made = len(server.texts), predictor.Predictor.forward

    def changed(self: Any, **inputs: Any) -> Any:
        signature = self.signature
        if "answer" not in signature.output_fields:
            return made(self, **inputs)
        with_more = signature.with_instructions(f"{signature.instructions} Be brief.")
        return made(self, **inputs, signature=with_more)

    monkeypatch.setattr(predictor.Predictor, "forward", changed)
    ran = mempiler_cli(server, *COMMANDS[name], "--replay", str(path))
    assert (ran.code, ran.out, len(server.texts)) == (2, "", asked)
    assert re.search(r"task\.answer \(task\) .*: its instructions have changed since its \d+ calls were rec", ran.line)


def test_another_temperature_is_refused_and_another_layout_is_missing(stub, mempiler_cli, elsewhere):
    server, path = stub(), elsewhere / "x.rec"
    assert mempiler_cli(server, *EVALUATE, "--record", str(path)).code == 0
    header, *_ = lines_of(path)
    assert (header["temperature"], header["adapter"]) == (None, None)
    for words in (["--temperature", "1"], ["--adapter", "xml"], ["--judge-lm", "openai/x"], ["--embedder", "openai/x"]):
        ran = mempiler_cli(server, *EVALUATE, *words, "--replay", str(path))
        assert (ran.code, ran.out) == (2, "")
        assert re.search(rf"was recorded .*, not {words[1]}.*; leave {words[0]} out$", ran.line)


def test_failed_calls_fail_again(stub, mempiler_cli, elsewhere):
    faults = {3: "400", 5: "garbled", 6: "garbled", 8: "500"}
    server, path = stub(lambda n, text: faults.get(n)), elsewhere / "x.rec"
    made = mempiler_cli(server, *LONGER, "--record", str(path))
    server.die()
    played = mempiler_cli(server, *LONGER, "--replay", str(path), threads=3)
    assert made.found["failures"] == 3
    assert table(played.found) == table(made.found)
    failed = [line["found"] for line in lines_of(path) if "error" in line.get("found", {})]
    assert [each["error"] for each in failed] == ["LMInvalidRequestError", "LMServerError"]
    rows = [json.loads(line)["failure"] for run in (made, played) for line in rows_of(run)]
    assert sorted(row["kind"] for row in rows if row) == ["endpoint"] * 2 + ["parse"] * 2 + ["refused"] * 2
    refusals = [row["message"] for row in rows if row and row["kind"] == "refused"]
    assert refusals[0] == refusals[1]


def rows_of(ran: Any) -> list[str]:
    """The questions of a run, in the order of its data."""
    for path in Path(os.environ["MEMPILER_HOME"]).glob("*/run.json"):
        if json.loads(path.read_text()).get("run_id") == ran.found["run_id"]:
            return sorted((path.parent / "evaluation_rows.jsonl").read_text().splitlines())
    raise AssertionError("no such run")


@pytest.mark.parametrize("limit", [["--max-calls", "3"], ["--max-tokens", "900"], ["--max-minutes", "0"]], ids=str)
@pytest.mark.parametrize("again", [True, False], ids=["named-again", "not-named"])
def test_a_limit_that_was_reached_is_reached_again(stub, mempiler_cli, elsewhere, limit, again):
    server, path = stub(), elsewhere / "x.rec"
    # More questions than threads: those in flight may finish beyond a limit.
    made = mempiler_cli(server, *LONGER, *limit, "--record", str(path), threads=3)
    server.die()
    played = mempiler_cli(server, *LONGER, *(limit if again else []), "--replay", str(path), threads=2)
    assert made.found["stopped"].startswith("budget reached")
    assert table(played.found) == table(made.found)


def test_a_limit_counts_replayed_calls_like_real_ones(stub, mempiler_cli, elsewhere):
    server, path = stub(), elsewhere / "x.rec"
    assert mempiler_cli(server, *EVALUATE, "--record", str(path)).code == 0
    live = mempiler_cli(stub(), *EVALUATE, "--max-calls", "3")
    played = mempiler_cli(server, *EVALUATE, "--max-calls", "3", "--replay", str(path))
    assert {**table(played.found), "lm": ""} == {**table(live.found), "lm": ""}
    assert played.found["stopped"] == "budget reached: max-calls 3"


def test_a_compile_that_a_limit_ends_is_replayed(stub, mempiler_cli, elsewhere):
    server, path = stub(), elsewhere / "x.rec"
    words = [*COMMANDS["bootstrap"], "--max-calls", "14"]
    made = mempiler_cli(server, *words, "--record", str(path))
    server.die()
    played = mempiler_cli(server, *words, "--replay", str(path))
    assert made.found["stopped"]
    assert table(played.found) == table(made.found)


def test_a_recording_names_no_key_no_place_and_no_prompt(stub, mempiler_cli, elsewhere, monkeypatch):
    key = "sk-secret-0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    server, path = stub(lambda n, text: "400" if n == 4 else None), elsewhere / "x.rec"
    data = elsewhere / "mine.json"
    data.write_bytes((Path(__file__).parents[3] / "data/samples/locomo.json").read_bytes())
    ran = mempiler_cli(server, *EVALUATE, "--data", str(data), "--record", str(path))
    assert ran.code == 0
    raw, text = path.read_bytes(), "\n".join(map(json.dumps, lines_of(path)))
    port = server.url.rsplit(":", 1)[1].removesuffix("/v1")
    forbidden = [key, str(elsewhere), str(Path.home()), "127.0.0.1", f":{port}", "mine.json", "Ingrid: Could not sleep"]
    assert [word for word in forbidden if word in text] == []
    assert raw[4:8] == b"\0" * 4  # no time
    assert raw[3] == 0  # no name
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_same_run_gives_the_same_recording_but_for_times(stub, mempiler_cli, elsewhere):
    server, found = stub(), []
    for name in ("a.rec", "b.rec"):
        assert mempiler_cli(server, *EVALUATE, "--record", str(elsewhere / name)).code == 0
        *lines, _ = lines_of(elsewhere / name)
        found.append([{**line, "seconds": 0} for line in lines])
    assert found[0] == found[1]


def test_a_recording_is_never_overwritten(stub, mempiler_cli, elsewhere):
    server, path = stub(), elsewhere / "x.rec"
    path.write_text("mine")
    ran = mempiler_cli(server, *EVALUATE, "--record", str(path))
    assert (ran.code, server.texts, path.read_text()) == (2, [], "mine")
    assert ran.line == f"mempiler: --record {path}: is there already; delete it, or name another file"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--record", "x.rec", "--resume", "run"], "--record does not go with --resume"),
        (["--replay", "x.rec", "--resume", "run"], "--replay does not go with --resume"),
        (["--record", "x.rec", "--replay", "x.rec"], "--record does not go with --replay"),
        (["--record", "x.rec", "--lm", "local:tiny"], "--record: local:tiny can be trained, and is not recorded"),
        (["--record", "x.rec", "--adapter", "no-such"], "unknown adapter 'no-such'"),
        (["--record", "x.rec", "--set", "no_such=1"], "no_such"),
        (["--record", "no/such/x.rec"], "--record no/such/x.rec: cannot be written: No such file"),
        (["--replay", "x.rec"], "--replay x.rec: no such file; make one with --record"),
        (["--replay", "."], ".: cannot be read: it is a folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_recorded_or_replayed_is_refused_in_one_line(stub, mempiler_cli, elsewhere, words, said):
    server = stub()
    ran = mempiler_cli(server, *EVALUATE, *words)
    assert (ran.code, ran.out, server.texts) == (2, "", [])
    assert said in ran.line
    assert list(elsewhere.glob("*.rec")) == []


def test_a_run_that_died_leaves_a_file_that_is_not_played(stub, mempiler_cli, elsewhere):
    server, path = stub(lambda n, text: "dead" if n > 3 else None), elsewhere / "x.rec"
    ended = mempiler_cli(server, *LONGER, "--record", str(path))
    assert ended.code == 3
    assert [line["kind"] for line in lines_of(path)][:3] == ["header", "lm", "lm"]
    ran = mempiler_cli(server, *LONGER, "--replay", str(path))
    assert (ran.code, ran.out) == (2, "")
    assert ran.line.endswith("is cut short: the run that was recorded did not come to its end; record again")


def test_a_stopped_recording_goes_on_without_being_recorded(stub, mempiler_cli, elsewhere):
    dying, back = stub(lambda n, text: "dead" if n > 3 else None), stub()
    back.model = dying.model
    ended = mempiler_cli(dying, *LONGER, "--record", str(elsewhere / "x.rec"))
    resumed = mempiler_cli(back, *LONGER, "--resume", ended.resume)
    assert (ended.code, resumed.code) == (3, 0)


def test_two_servers_with_one_name_are_not_recorded(stub, mempiler_cli, elsewhere):
    one, two = stub(), stub()
    words = [*COMMANDS["gepa"], "--prompt-lm", one.model, "--prompt-api-base", two.url]
    ran = mempiler_cli(one, *words, "--record", str(elsewhere / "x.rec"))
    assert (ran.code, one.texts, two.texts) == (2, [], [])
    assert f"two servers have a model '{one.model}'; rename one of the two" in ran.line


def test_a_suite_is_one_recording(stub, mempiler_cli, elsewhere, capsys):
    from mempiler.cli import main

    server, path = stub(), elsewhere / "x.rec"
    words = ["evaluate", "no-memory", "--on", "palbench", "--json", "--test", "2", "--threads", "1"]
    main([*words, "--lm", server.model, "--api-base", server.url, "--record", str(path)])
    made = capsys.readouterr().out
    server.die()
    main([*words, "--replay", str(path)])
    assert table(json.loads(capsys.readouterr().out)) == table(json.loads(made))


class Toy:
    """An embedder whose calls are counted."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, name: str, api_base: str | None = None) -> TextEmbedder:
        return TextEmbedder(name, self.compute, 0, (0.1, 0.2))

    def compute(self, texts: Any) -> np.ndarray:
        self.texts += texts
        return np.array([[len(text), text.count("e") + 0.1, text.count(" ") / 7] for text in texts])


def test_vectors_are_recorded_and_replayed_without_the_embedder(stub, elsewhere, monkeypatch):
    server, path, toy = stub(), elsewhere / "x.rec", Toy()
    sizes = {"train": 8, "dev": 2, "test": 3, "threads": 2}
    setup = {"benchmark": "locomo", "lm": server.model, "api_base": server.url, **sizes}
    monkeypatch.setattr("mempiler.runs.setup.make_embedder", toy)
    named = {"embedder": "openai/toy", "embedder_api_base": "http://10.0.0.1:9/v1"}
    made = run_evaluate("memory-r2", Setup(**setup, **named, record=str(path)), "test")
    asked = len(toy.texts)
    server.die()
    monkeypatch.setattr("mempiler.runs.setup.make_embedder", None)
    played = run_evaluate("memory-r2", Setup("locomo", **{**sizes, "threads": 1}, replay=str(path)), "test")
    assert asked == len(toy.texts) > 10
    assert (made.embedder, played.embedder) == ("openai/toy", "openai/toy")
    assert table(played.summary()) == table(made.summary())
    (source,) = [line for line in lines_of(path) if line["kind"] == "embedder"]
    assert source["unrelated"] == [0.1, 0.2]
    monkeypatch.setattr("mempiler.runs.setup.make_embedder", toy)
    monkeypatch.setattr("mempiler.runs.tape.player.text_key", lambda text: text)
    with pytest.raises(UserError, match=r"has no vector of openai/toy for the text '.+': data, options"):
        run_evaluate("memory-r2", Setup("locomo", **sizes, replay=str(path)), "test")
    assert asked == len(toy.texts)


def test_a_gguf_model_is_replayed_without_its_weights(stub, elsewhere, monkeypatch, mempiler_cli, capsys):
    from mempiler.cli import main

    server, path = stub(schemas="honour"), elsewhere / "x.rec"

    class Served:
        url, key, model, context = server.url, "0123456789abcdef", "small@0123456789ab", 8192

    weights = elsewhere / "models" / "small.gguf"
    weights.parent.mkdir()
    weights.write_bytes(b"GGUF")
    monkeypatch.setattr("mempiler.engines.gguf.server.GgufServer", lambda path, slots: Served())
    words = ["evaluate", "turn-rag", "--on", "locomo", "--json", "--test", "2", "--threads", "1"]
    main([*words, "--lm", f"gguf:{weights}", "--record", str(path)])
    made = capsys.readouterr().out
    server.die()
    weights.unlink()
    monkeypatch.setattr("mempiler.engines.gguf.server.GgufServer", None)
    main([*words, "--replay", str(path)])
    assert table(json.loads(capsys.readouterr().out)) == table(json.loads(made))
    models = lines_of(path)[0]["models"]
    sizes = {"max_tokens": 1024, "window": 8192}
    assert models == {"task": {"lm": "gguf:small.gguf", "model": "openai/small@0123456789ab", **sizes}}
    assert str(elsewhere) not in json.dumps(lines_of(path))


def test_a_saved_program_is_replayed_from_another_place(stub, mempiler_cli, elsewhere):
    server, path = stub(), elsewhere / "x.rec"
    compiled = mempiler_cli(server, *COMMANDS["bootstrap"], "--force", "--out", str(elsewhere / "program"))
    assert compiled.code == 0
    made = mempiler_cli(server, "evaluate", str(elsewhere / "program"), "--part", "test", "--record", str(path))
    server.die()
    moved = (elsewhere / "program").rename(elsewhere / "moved")
    played = mempiler_cli(server, "evaluate", str(moved), "--part", "test", "--replay", str(path))
    assert table(played.found) == table(made.found)


def test_a_replay_is_marked_in_its_run(stub, mempiler_cli, elsewhere):
    server, path = stub(), elsewhere / "x.rec"
    mempiler_cli(server, *EVALUATE, "--record", str(path))
    played = mempiler_cli(server, *EVALUATE, "--replay", str(path))
    runs = [json.loads(each.read_text()) for each in Path(os.environ["MEMPILER_HOME"]).glob("*/run.json")]
    (run,) = [each for each in runs if each.get("run_id") == played.found["run_id"]]
    assert run["parameters"]["replay"] == "x.rec"
    assert dspy.settings.lm is None
