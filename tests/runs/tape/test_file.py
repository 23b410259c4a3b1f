"""Recordings that are damaged or hostile are refused in one line, within bounds; answers of every form come back."""

import gzip
import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from dspy.lm15 import ContextLengthError, Message, Response, TextPart, ThinkingPart, ToolCallPart, Usage
from dspy.utils.exceptions import ContextWindowExceededError
from mempiler.engines.meter import Meter, MeteredLM
from mempiler.errors import DataError, UserError
from mempiler.reading.cut import CutText
from mempiler.runs.tape import file as tape_file
from mempiler.runs.tape.file import Header, public_name
from mempiler.runs.tape.player import Player
from mempiler.runs.tape.recorder import Recorder

ANSWER = {"outputs": ["yes"], "finish": ["stop"], "native": True, "usage": {}, "cost": None}
CALL = {"kind": "lm", "role": "task", "by": "x", "key": "0", "number": 0, "parts": [], "found": ANSWER, "seconds": 1}
EMBED = {"kind": "embed", "name": "toy", "key": "0", "vector": "AACAPw=="}
HEADER = {
    "kind": "header",
    "recording": 1,
    "version": "0",
    "command": "evaluate",
    "program": "turn-rag",
    "benchmark": "locomo",
    "about": {},
    "models": {"task": {"lm": "openai/x", "model": "openai/x"}},
    "embedder": "offline",
    "adapter": None,
    "temperature": None,
    "limits": {},
}


def packed(*lines: Any, end: bool = True) -> bytes:
    """A recording with these lines, or texts, and an end that fits them."""
    texts = [line if isinstance(line, bytes) else f"{json.dumps(line)}\n".encode() for line in lines]
    last = {"kind": "end", "lines": len(texts), "sha256": hashlib.sha256(b"".join(texts)).hexdigest()}
    return gzip.compress(b"".join([*texts, *([f"{json.dumps(last)}\n".encode()] if end else [])]), mtime=0)


def changed(line: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {**line, **values}


def refusal(folder: Path, content: bytes) -> str:
    path = folder / "x.rec"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        Player(path)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")


def test_the_recording_that_these_tests_spoil_is_whole(tmp_path):
    (tmp_path / "x.rec").write_bytes(packed(HEADER, CALL, EMBED))
    assert Player(tmp_path / "x.rec").header.program == "turn-rag"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no recording; make one with --record"),
        (b"{}\n", "is no recording"),
        (b"\x1f\x8b\x08\x00garbage", "is cut short"),
        (gzip.compress(b"", mtime=0), "is no recording"),
        (packed(), "is no recording"),
        (packed({}), "is no recording"),
        (packed([1, 2]), "is no recording"),
        (packed(b"\xff\xfe\n"), "is no recording"),
        (packed(CALL), "is no recording"),
        (packed(changed(HEADER, recording=2)), "was recorded by a newer Mempiler"),
        (packed(changed(HEADER, recording="2")), "is no recording"),
        (packed(changed(HEADER, about={"seed": [1]})), "is no recording"),
        (packed(HEADER, HEADER), "line 2 is no line of a recording"),
        (packed(HEADER, CALL, end=False), "is cut short: the run that was recorded did not come to its end"),
        (packed(HEADER, b'{"kind": "lm"', end=False), "is cut short"),
        (packed(HEADER, b"\n"), "line 2 is no line of a recording"),
        (packed(HEADER, b"[" * 5000 + b"\n"), "line 2 is no line of a recording"),
        (packed(HEADER, b'{"kind": "lm", "kind": "lm"}\n'), "line 2 is no line of a recording"),
        (packed(HEADER, b'{"kind": "end", "lines": NaN, "sha256": ""}\n'), "line 2 is no line of a recording"),
        (packed(HEADER, {"kind": "note"}), "line 2 is no line of a recording"),
        (packed(HEADER, changed(CALL, number=-1)), "line 2 is no line of a recording (lm.number: "),
        (packed(HEADER, changed(CALL, number="0")), "(lm.number: "),
        (packed(HEADER, changed(CALL, more=1)), "(lm.more: "),
        (packed(HEADER, changed(CALL, found=changed(ANSWER, outputs=[]))), "(lm.found"),
        (packed(HEADER, changed(CALL, found=changed(ANSWER, outputs=[1]))), "(lm.found"),
        (packed(HEADER, changed(CALL, found=changed(ANSWER, finish=["because"]))), "(lm.found"),
        (packed(HEADER, changed(CALL, found=changed(ANSWER, usage={"prompt_tokens": -5}))), "(lm.found"),
        (packed(HEADER, changed(CALL, found=changed(ANSWER, usage={"prompt_tokens": 10**30}))), "(lm.found"),
        (packed(HEADER, changed(EMBED, vector="no base64!")), "holds a vector that is none"),
        (packed(HEADER, changed(EMBED, vector="")), "holds a vector that is none"),
        (packed(HEADER, changed(EMBED, vector="AAA=")), "holds a vector that is none"),
        (packed(HEADER, changed(EMBED, vector="AADAfw==")), "holds a vector that is none"),
        (packed(HEADER, EMBED, changed(EMBED, key="1", vector="AACAPwAAgD8=")), "vectors of several lengths"),
        (gzip.compress(gzip.decompress(packed(HEADER, CALL)).replace(b"yes", b"not")), "was altered after it was"),
        (gzip.compress(gzip.decompress(packed(HEADER, CALL)) + b"{}\n"), "line 4 is no line of a recording"),
        (packed(HEADER, CALL) + packed(HEADER, CALL), "line 4 is no line of a recording"),
        (packed(HEADER, CALL) + b"more", "is damaged"),
    ],
)
def test_what_is_no_whole_recording_is_refused_in_one_line(tmp_path, content, said):
    assert said in refusal(tmp_path, content)


def test_a_file_that_is_cut_anywhere_is_refused(tmp_path):
    whole = packed(HEADER, CALL, EMBED)
    for size in range(0, len(whole), 7):
        assert "is cut short" in refusal(tmp_path, whole[:size]) or size < 10


def test_a_byte_that_is_altered_anywhere_is_found(tmp_path):
    whole = packed(HEADER, CALL, EMBED)
    for place in range(10, len(whole), 5):
        spoiled = bytearray(whole)
        spoiled[place] ^= 0x55
        assert refusal(tmp_path, bytes(spoiled))


@pytest.mark.parametrize(
    "bomb",
    [packed(HEADER, b"a" * 3_000_000 + b"\n"), packed(HEADER, *[CALL] * 20_000), gzip.compress(b"\0" * 3_000_000)],
    ids=["line", "lines", "no-line"],
)
def test_what_unpacks_to_too_much_is_not_read(tmp_path, monkeypatch, bomb):
    monkeypatch.setattr(tape_file, "MOST_LINE", 1_000_000)
    monkeypatch.setattr(tape_file, "MOST_BYTES", 2_000_000)
    assert len(bomb) < 30_000
    assert refusal(tmp_path, bomb) == "is larger than any recording"


def test_a_run_that_would_be_too_large_to_replay_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(tape_file, "MOST_BYTES", 2_000)
    lm = recording(tmp_path / "x.rec", lambda request: reply(request, "long " * 100))
    with pytest.raises(UserError, match="grows too large to be replayed; record fewer questions"):
        [lm(f"question {n}") for n in range(9)]
    lm.tape.close(False)


def reply(request: Any, text: str, finish: Any = "stop", thought: str = "") -> Response:
    parts = ([ThinkingPart(thought)] if thought else []) + [TextPart(text)]
    message = Message(role="assistant", parts=tuple(parts))
    usage = Usage(input_tokens=7, output_tokens=3, total_tokens=10, cache_read_tokens=4)
    return Response(id="stub-17", model=request.model, message=message, finish_reason=finish, usage=usage)


def calling(request: Any, text: str | None, *inputs: dict[str, Any]) -> Response:
    """An answer that calls a tool, with some text or none before it."""
    tools = [ToolCallPart(f"call-{n}", "Memory", given) for n, given in enumerate(inputs)]
    message = Message(role="assistant", parts=(*([] if text is None else [TextPart(text)]), *tools))
    usage = Usage(input_tokens=7, output_tokens=3)
    return Response(id="stub-17", model=request.model, message=message, finish_reason="tool_call", usage=usage)


class Engine:
    """An engine whose answers a test writes."""

    supports_function_calling = False
    supports_reasoning = True
    supports_response_schema = False
    supported_params = ("temperature", "max_tokens")

    def __init__(self, answer: Any) -> None:
        self.complete = answer

    def __deepcopy__(self, memo: object) -> "Engine":
        return self


def header(models: Any) -> Header:
    return Header.model_validate({**HEADER, "models": models})


def recording(path: Path, answer: Any) -> MeteredLM:
    """A model whose calls are recorded."""
    recorder = Recorder(path, header)
    lm = MeteredLM("toy/model", Meter(), engine=Engine(answer), cache=False, num_retries=0, tape=recorder)
    recorder.begin({"task": ("toy/model", lm)})
    return lm


def unasked(request: Any) -> Any:
    raise AssertionError("a call was made")


def playing(path: Path) -> MeteredLM:
    """The same model, which must not be asked."""
    return MeteredLM("toy/model", Meter(), engine=Engine(unasked), cache=False, num_retries=0, tape=Player(path))


@pytest.mark.parametrize(
    ("answer", "settings"),
    [
        (lambda request: reply(request, "Lisbon"), {}),
        (lambda request: reply(request, ""), {}),
        (lambda request: reply(request, "Lis", "length"), {}),
        (lambda request: reply(request, "Lisbon", thought="She moved."), {}),
        (lambda request: reply(request, "Lisbon"), {"n": 3}),
        (lambda request: reply(request, "Lis", "length"), {"n": 2}),
        (lambda request: calling(request, None, {"content": "Ann moved."}, {}), {}),
        (lambda request: calling(request, "I note it.", {"content": {"who": ["Ann"]}}), {"n": 2}),
    ],
    ids=["text", "empty", "cut", "thought", "candidates", "cut-candidates", "tools", "text and tools"],
)
def test_an_answer_of_any_form_comes_back(tmp_path, answer, settings):
    live = recording(tmp_path / "x.rec", answer)
    said = live("Where is Ann?", **settings)
    live.tape.close(True)
    again = playing(tmp_path / "x.rec")
    played = again("Where is Ann?", **settings)
    assert played == said
    assert {isinstance(each, CutText) for each in [*said, *played]} == {"length" in answer.__code__.co_consts}
    assert again.meter.read() == live.meter.read()
    assert b"stub-17" not in gzip.decompress((tmp_path / "x.rec").read_bytes())


def test_a_prompt_that_is_too_long_is_too_long_again(tmp_path):
    def refuse(request: Any) -> Any:
        raise ContextLengthError("context size 8192 exceeded at http://10.1.2.3:8080/v1 for /home/ann/model.gguf")

    live = recording(tmp_path / "x.rec", refuse)
    raised = []
    for lm in (live, None):
        lm = lm or playing(tmp_path / "x.rec")
        with pytest.raises(ContextWindowExceededError) as caught:
            lm("long")
        raised.append(str(caught.value))
        if lm is live:
            live.tape.close(True)
    assert raised[0] == raised[1]
    assert raised[0].startswith("[toy/model] context size 8192 exceeded at ... for ...")
    assert "10.1.2.3" not in raised[0]


def test_equal_calls_are_answered_in_the_order_in_which_they_were_made(tmp_path):
    texts = iter(["one", "two", "three"])
    live = recording(tmp_path / "x.rec", lambda request: reply(request, next(texts)))
    said = [live("again", temperature=1.0)[0] for _ in range(3)]
    live.tape.close(True)
    again = playing(tmp_path / "x.rec")
    assert [again("again", temperature=1.0)[0] for _ in range(3)] == said == ["one", "two", "three"]
    with pytest.raises(UserError, match="it was not asked so often"):
        again("again", temperature=1.0)
    with pytest.raises(UserError, match="was recorded with other settings or another model"):
        playing(tmp_path / "x.rec")("again", temperature=0.5)


async def ask_async(lm: MeteredLM) -> Any:
    return await lm.acall("Where is Ann?")


def test_calls_under_asyncio_are_recorded_and_played(tmp_path):
    import asyncio

    live = recording(tmp_path / "x.rec", lambda request: reply(request, "Lisbon"))
    said = asyncio.run(ask_async(live))
    live.tape.close(True)
    again = playing(tmp_path / "x.rec")
    assert asyncio.run(ask_async(again)) == said == ["Lisbon"]
    assert again.meter.read() == live.meter.read()


def test_a_copy_of_a_model_plays_from_the_same_tape(tmp_path):
    live = recording(tmp_path / "x.rec", lambda request: reply(request, "Lisbon"))
    live.copy(temperature=0.5)("Where?")
    live.tape.close(True)
    assert playing(tmp_path / "x.rec").copy(temperature=0.5)("Where?") == ["Lisbon"]


def test_a_killed_run_leaves_whole_lines(tmp_path):
    live = recording(tmp_path / "x.rec", lambda request: reply(request, "Lisbon"))
    live("one"), live("two")
    left = zlib.decompressobj(wbits=31).decompress((tmp_path / "x.rec").read_bytes()).decode()
    assert [json.loads(line)["kind"] for line in left.splitlines()] == ["header", "lm", "lm"]
    assert left.endswith("\n")
    live.tape.close(False)
    with pytest.raises(UserError, match="is cut short"):
        Player(tmp_path / "x.rec")


def test_a_model_that_runs_here_is_not_loaded_for_a_replay(tmp_path):
    model = {"task": {"lm": "openai/x", "model": "local:/somewhere"}}
    (tmp_path / "x.rec").write_bytes(packed(changed(HEADER, models=model)))
    with pytest.raises(UserError, match="was recorded without a task model"):
        Player(tmp_path / "x.rec").model("task", "openai/x")


def test_a_folder_is_no_recording(tmp_path):
    with pytest.raises(DataError, match="it is a folder"):
        Player(tmp_path)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("openai/gpt-4.1-mini", "openai/gpt-4.1-mini"),
        ("gguf:qwen2.5-coder-0.5b", "gguf:qwen2.5-coder-0.5b"),
        ("gguf:/home/ann/small.gguf", "gguf:small.gguf"),
        ("gguf:models/small.gguf", "gguf:small.gguf"),
        ("gguf:~/small.gguf", "gguf:small.gguf"),
        (r"gguf:C:\Users\ann\small.gguf", "gguf:small.gguf"),
        ("hosted_vllm//srv/models/llama", "hosted_vllm/llama"),
        ("/srv/models/e5", "e5"),
        ("BAAI/bge-m3", "BAAI/bge-m3"),
    ],
)
def test_a_name_keeps_no_folder(name, shown):
    assert public_name(name) == shown
