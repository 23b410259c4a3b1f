"""A PAL-Set is written step by step: checked, looked over, mended, whole or left out, gone on with after a kill."""

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime, timedelta

import dspy
import pytest
from mempiler.cli import main
from mempiler.data.synthesis.journal import Journal
from mempiler.data.synthesis.palset.make import make_palset
from mempiler.data.synthesis.palset.people import Setting
from mempiler.data.synthesis.palset.validate import validate
from mempiler.data.synthesis.runner import Runner

ASPECTS = ("work", "health", "family", "leisure")


def field(text, name):
    """An input of a prompt, parsed if it is JSON."""
    raw = text.split(f"[[ ## {name} ## ]]\n")[1].split("\n\n[[ ##")[0].split("Respond with")[0].strip()
    try:
        return json.loads(raw)
    except ValueError:
        return raw


def sentences(text, count=5):
    return " ".join(f"{text} number {n}." for n in range(count))


def people(text):
    known, chinese = len(field(text, "earlier_people")), field(text, "language") == "Chinese"
    levels = dict.fromkeys(("openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism"), "Low")
    for n in range(known, known + int(field(text, "count"))):
        told = {
            name: sentences(f"The user {name} {n}", 2)
            for name in ("occupation", "health_status", "family_members", "hobbies")
        }
        yield {"name": f"{'李' if chinese else 'Ann'} {n}", "gender": "f", "age": 30 + n, "personality": levels} | told


def situations(text):
    month, last = field(text, "month"), field(text, "begin_after")
    start = datetime.fromisoformat(last) + timedelta(1) if last else datetime.fromisoformat(f"{month}-01")
    first = datetime.fromisoformat(f"{month}-01")
    following = (first + timedelta(32)).replace(day=1)
    types = [one.partition(":")[0] for one in field(text, "requirement_types")]
    for n, end in enumerate(
        [first + timedelta(6), first + timedelta(13), first + timedelta(20), following - timedelta(1)]
    ):
        told = sentences(f"The user lived through part {n} of {month}")
        ids = types[n : n + 1 + n % 3]
        yield {"start": f"{start:%Y-%m-%d}", "end": f"{end:%Y-%m-%d}", "requirement_ids": ids, "situation": told}
        start = end + timedelta(1)


def logs(text):
    begin = datetime.fromisoformat(field(text, "begin"))
    for n in range(20):
        content = f"The user searched for thing {n} of {begin:%m-%d} and viewed it."
        stamp = f"{begin + timedelta(minutes=7 * n):%Y-%m-%d %H:%M}"
        yield {"timestamp": stamp, "event": "e", "type": "Web Search", "content": content}


def turns(text):
    for line in field(text, "plan"):
        user, said, assistant, answered = re.findall(r"user (.*?) \((\w+)\); assistant (.*?) \((\w+)\)", line)[0]
        yield {
            "user": {"action": user, "reference": said, "content": f"I speak of {said}"},
            "assistant": {"action": assistant, "reference": answered, "content": f"I answer on {answered}"},
        }


def topic(kind, text):
    need = {"need": f"need of {kind}", "evidences": ["a detail"]}
    return {
        "requirement_type": kind,
        "user_query": f"What about {kind} in {re.findall('part . of .{7}', text)[0]}?",
        "implicit_needs": [need, {**need, "need": f"other need of {kind}"}],
        "requirement": f"The user needs {kind} and more.",
    }


def good(kind, text, n):
    """A model that does everything right, and finds nothing to mend."""
    if kind == "people":
        return {kind: list(people(text))}
    if kind == "timeline":
        return {kind: [{"month": month, "events": sentences(month)} for month in field(text, "months")]}
    if kind == "requirement_types":
        age = field(text, "profile")["age"]
        return {
            kind: [{"aspect": one, "text": f"{one} advice {n} at {age}"} for one in reversed(ASPECTS) for n in range(4)]
        }
    if kind == "preferences":
        told = [one.split(": ") for one in field(text, "requirement_types")]
        likes = {"analysis": "So it is.", "pos": sentences("Likes", 4), "neg": sentences("Hates", 4)}
        return {kind: [{"requirement_id": id, "requirement": one} | likes for id, one in told]}
    if kind == "situations":
        return {kind: list(situations(text))}
    if kind == "experience":
        return {kind: sentences(f"The user went out, {field(text, 'situation')[:40]}", 8)}
    if kind == "topics":
        return {kind: [topic(one, text) for one in field(text, "requirement_types")]}
    if kind == "candidates":
        keys = [one.partition(":")[0] for one in field(text, "topics")]
        return {kind: [{"topic": key, "solutions": [f"Solution {m} of {key}" for m in range(8)]} for key in keys]}
    if kind == "analysis":
        chosen = [{"solution": one, "feedback_reason": "Suits the user."} for one in field(text, "candidates")]
        return {kind: "As it is.", "liked": chosen[2:4], "disliked": chosen[5:7]}
    if kind == "logs":
        return {kind: list(logs(text))}
    return {kind: list(turns(text)) if kind == "turns" else []}


@pytest.fixture
def made(tmp_path, scripted):
    """Makes a data set; gives its folder's files by name, the report, and the calls by kind."""

    def run(reply, users=1, months=2, language="en", attempts=2, reviews=0, seed=0, threads=2, **other):
        lm, out, resume = scripted(reply), tmp_path / other.get("out", "pal"), other.get("resume", True)
        with Journal.open(out / "generation" / "journal.jsonl", resume) as journal, dspy.context(lm=lm):
            runner = Runner(journal, attempts, threads)
            files = make_palset(users, out, Setting(language, months, seed, runner, reviews), lambda line: None)
        return {path.name: json.loads(path.read_text()) for path in files}, runner.report, lm.engine.calls

    return run


@pytest.mark.parametrize("language", ["en", "zh"])
def test_two_users_pass_the_validator_and_the_benchmark_reads_them(made, tmp_path, language):
    files, report, _ = made(good, users=2, language=language)
    name = "input_en.json" if language == "en" else "input.json"
    assert validate(tmp_path / "pal" / name) == []
    assert report.rejections == []
    assert list(files[name]) == ["0000", "0001"]
    palset = pytest.importorskip("mempiler.data.palbench.reader")
    notes = []
    histories, asked = palset.read_palset([tmp_path / "pal" / name], notes.append)
    assert notes == []
    assert [history.id for history in histories] == ["0000", "0001"]
    samples = [sample for user in files[name].values() for sample in user["query"]]
    assert len(asked) == sum(len(sample["topics"]) for sample in samples) > 0
    assert json.loads(asked[0].persona.needs)["implicit_needs"][0]["evidences"] == ["a detail"]
    assert asked[0].persona.situation.startswith("The user lived through part")
    assert "Suits the user." in asked[0].persona.preferences


def test_a_sample_has_the_released_form(made):
    files, _, _ = made(good)
    user = files["input_en.json"]["0000"]
    samples = [*user["history"], *user["query"]]
    assert [one["sample_id"] for one in samples] == [f"0000_sample{n}" for n in range(len(samples))]
    assert {one["dialogue_timestamp"][:7] for one in user["history"]} == {"2024-11"}
    assert {one["dialogue_timestamp"][:7] for one in user["query"]} == {"2024-12"}
    sample = samples[0]
    assert list(sample) == ["sample_id", "dialogue_timestamp", "logs", "dialogue", "topics"]
    assert list(sample["logs"][0]) == ["timestamp", "content"]
    first = sample["dialogue"]["turn_1"]
    assert first["user"] == {"action": "topic inquiry", "content": "I speak of T1_Q"}
    assert first["assistant"]["action"] == "requirement prediction"
    feedback = [one["feedback"] for one in sample["topics"]["topic-1"]["candidate_solutions"]]
    assert feedback == ["neu", "neu", "pos", "pos", "neu", "neg", "neg", "neu"]
    assert sample["topics"]["topic-1"]["solution"]["pos"] == ["Solution 2 of topic-1", "Solution 3 of topic-1"]


def test_side_files_have_the_released_form(made):
    files, _, _ = made(good)
    assert list(files["background_en.json"]["0000"]) == [
        "name", "gender", "age", "occupation", "health status", "family members", "hobbies", "personality",
    ]  # fmt: skip
    assert files["background_en.json"]["0000"]["personality"]["Openness"] == "low"
    assert list(files["requirement_en.json"]["0000"]) == list(ASPECTS)
    assert files["requirement_en.json"]["0000"]["work"]["work-1"] == "work advice 0 at 30"
    assert list(files["preference_en.json"]["0000"]["health"]["health-2"]) == ["requirement", "preference"]
    days = files["dialogue_situation_ids_en.json"]["0000"]
    assert set(files["situation_en.json"]["0000"]) > {*days["history"], *days["query"]}
    assert list(files["requirement_framework_en.json"]["0000"]) == [*days["history"], *days["query"]]
    assert len(files["log_en.json"]["0000"]) == len(files["experience_en.json"]["0000"]) == 8
    day = days["query"][0]
    assert len(files["candidate_solution_en.json"]["0000"][day]["topic-1"]) == 8
    assert len(files["solution_preference_en.json"]["0000"][day]["topic-1"]["neg_list"]) == 2


def test_logs_of_situations_without_a_dialogue_belong_to_the_next_one(made):
    files, _, _ = made(good, months=4)
    samples = [one for part in files["input_en.json"]["0000"].values() for one in part]
    counts = [len(one["logs"]) for one in samples]
    assert set(counts) > {20}
    assert set(counts) <= {20, 40, 60, 80}


def test_chinese_data_has_the_chinese_actions(made):
    files, _, _ = made(good, language="zh")
    dialogue = files["input.json"]["0000"]["query"][0]["dialogue"]
    assert dialogue["turn_1"]["user"]["action"] == "话题询问"
    assert list(dialogue.values())[-1]["assistant"]["action"] == "反馈回应"


def test_candidates_are_written_without_a_look_at_the_user(made):
    seen = []
    made(lambda kind, text, n: (kind == "candidates" and seen.append(text)) or good(kind, text, n))
    assert seen
    assert not any("Ann" in text or "Likes" in text or "profile" in text for text in seen)


def test_a_query_dialogue_proposes_liked_solutions_alone_to_an_assistant_that_knows_the_user(made):
    seen = []
    made(lambda kind, text, n: (kind == "turns" and seen.append(text)) or good(kind, text, n), months=4)
    query = [text for text in seen if "knows background" in text]
    history = [text for text in seen if "knows neither" in text]
    assert query
    assert len(history) + len(query) == len(seen)
    assert not any('"feedback": "neg"' in text for text in query)
    assert any('"feedback": "neg"' in text for text in history)


BROKEN = {
    "people": lambda rows: rows[:-1],
    "timeline": lambda rows: rows[1:],
    "requirement_types": lambda rows: rows[3:],
    "preferences": lambda rows: rows[::-1],
    "situations": lambda rows: rows[:3],
    "experience": lambda text: "Too little.",
    "topics": lambda rows: [{**row, "implicit_needs": row["implicit_needs"][:1]} for row in rows],
    "candidates": lambda rows: [{**row, "solutions": row["solutions"][:7]} for row in rows],
    "logs": lambda rows: rows[:14],
    "turns": lambda rows: rows[:-1],
}


def test_answers_that_break_a_rule_are_asked_for_again_with_what_was_wrong(made):
    complaints = {}

    def reply(kind, text, n):
        answer = good(kind, text, n)
        if kind in BROKEN and n == 2:
            complaints[kind] = field(text, "complaints").splitlines()
        return {kind: BROKEN[kind](answer[kind])} if kind in BROKEN and n == 1 else answer

    files, report, _ = made(reply, threads=1)
    assert files
    assert set(complaints) == set(BROKEN)
    assert {one.outcome for one in report.rejections} == {"retried"}
    told = [[f"- {problem}" for problem in one.problems] for one in report.rejections]
    assert all(told)
    assert list(complaints.values()) == told


def test_no_attempt_repeats_a_question_so_that_no_cache_can_answer_it(made):
    seen = []

    def reply(kind, text, n):
        seen.append(text)
        return {kind: []} if kind == "people" else good(kind, text, n)

    files, report, _ = made(reply, attempts=5)
    assert (files, len(seen), len(set(seen))) == ({}, 5, 5)
    assert "- this is attempt 4" in seen[3]
    assert {one.problems for one in report.rejections if one.step == "people"} == {("0 users; invent 1",)}


def test_a_solution_that_is_no_candidate_is_asked_for_again(made):
    def reply(kind, text, n):
        answer = good(kind, text, n)
        if kind == "analysis" and n == 1:
            answer["liked"][0]["solution"] += " indeed"
        return answer

    _, report, _ = made(reply)
    assert [one.step for one in report.rejections] == ["liked and disliked"]
    assert "is none of the candidates" in report.rejections[0].problems[0]


@pytest.mark.parametrize("lost", ["timeline", "preferences", "situations"])
def test_a_user_without_a_whole_persona_is_left_out_and_the_others_stay(made, lost):
    def reply(kind, text, n):
        return {kind: []} if kind == lost and "Ann 0" in text else good(kind, text, n)

    files, report, _ = made(reply, users=2)
    assert list(files["input_en.json"]) == ["0001"]
    assert [one.id for one in report.rejections if one.step == "user"] == ["0000"]


@pytest.mark.parametrize("lost", ["turns", "analysis"])
def test_a_dialogue_that_is_given_up_leaves_its_logs_to_the_next_one(made, lost):
    """Lost is the dialogue of November's first week, which is drawn for this seed."""
    whole, _, _ = made(good, out="whole")

    def reply(kind, text, n):
        gone = "part 0 of 2024-11" in text
        return {kind: [], "liked": [], "disliked": []} if kind == lost and gone else good(kind, text, n)

    files, report, _ = made(reply, threads=1)
    before, after = (found["input_en.json"]["0000"]["history"] for found in (whole, files))
    assert before[0]["dialogue_timestamp"].startswith("2024-11-07")
    assert len(after) == len(before) - 1
    assert after[0]["logs"] == before[0]["logs"] + before[1]["logs"]
    assert report.count("dialogue" if lost == "turns" else "liked and disliked", "given up") == 1


@pytest.mark.parametrize("lost", ["experience", "logs"])
def test_a_situation_without_experience_or_logs_has_no_dialogue(made, lost):
    def reply(kind, text, n):
        gone = kind == lost and "part 0 of 2024-11" in field(
            text, "situation" if kind == "experience" else "experience"
        )
        return {kind: "" if kind == "experience" else []} if gone else good(kind, text, n)

    files, _, _ = made(reply)
    days = files["log_en.json"]["0000"]
    assert "2024-11-07" not in days
    samples = [one for part in files["input_en.json"]["0000"].values() for one in part]
    assert not any(one["dialogue_timestamp"].startswith("2024-11-07") for one in samples)
    assert sum(len(one["logs"]) for one in samples) <= 20 * len(days)


def test_a_user_without_a_query_dialogue_is_left_out(made):
    def reply(kind, text, n):
        return {kind: []} if kind == "turns" and "knows background" in text else good(kind, text, n)

    files, report, _ = made(reply)
    assert files == {}
    assert [one.problems for one in report.rejections if one.step == "whole user"] == [
        ("no dialogue in the query set",)
    ]


def test_logs_out_of_time_are_left_out_of_the_last_attempt(made):
    def reply(kind, text, n):
        answer = good(kind, text, n)
        if kind == "logs" and "2024-11-01" in field(text, "begin"):
            answer["logs"][3]["timestamp"] = "2023-01-01 10:00"
            answer["logs"].reverse()
        return answer

    files, report, _ = made(reply)
    entries = files["log_en.json"]["0000"]["2024-11-07"]
    assert len(entries) == 19
    assert [one["timestamp"] for one in entries] == sorted(one["timestamp"] for one in entries)
    assert [one.outcome for one in report.rejections] == ["retried", "left out"]


LOG, WORDS = "The user searched for thing 4 of 11-01 and viewed it.", "turn 2 | user"


def faulty(kind, text, mend=True):
    """Finds two faulty log entries and two faulty utterances in the first week, and mends them if so told."""
    if kind == "faults" and "[[ ## logs ## ]]" in text and LOG in text:
        return {kind: [{"number": 5, "reason": "bought, not searched"}]}
    if kind == "contradictions" and "L6: 2024-11-01" in text and "thing 5 " in text:
        return {kind: [{"record": "[l6]", "reason": "has no car"}]}
    if kind == "faults" and f"{WORDS} | requirement confirmation | I speak of T1_N1" in text:
        return {kind: [{"turn": 2, "role": "User", "reason": "asks for something else"}]}
    if kind == "contradictions" and "U1: I speak of T1_Q" in text:
        return {kind: [{"record": "U1", "reason": "hates that"}]}
    if kind == "mended" and "[[ ## entries ## ]]" in text:
        numbers = [int(line.split(" | ")[0]) for line in field(text, "entries")]
        said = "The user bought a lamp." if mend else f"{LOG} The thing 5 too."
        return {kind: [{"number": n, "type": "Transaction_record", "content": said} for n in numbers]}
    if kind == "mended":
        told = [line.split(" | ")[:2] for line in field(text, "faulty")]
        places = [(int(turn.split()[1]), role) for turn, role in told]
        said = {1: "What now?" if mend else "I speak of T1_Q", 2: "Yes." if mend else "I speak of T1_N1"}
        return {kind: [{"turn": turn, "role": role, "content": said[turn]} for turn, role in places]}
    return None


def test_faults_are_mended_and_what_was_mended_is_looked_at_again(made):
    files, report, calls = made(lambda kind, text, n: faulty(kind, text) or good(kind, text, n), reviews=1)
    assert report.rejections == []
    entries = files["log_en.json"]["0000"]["2024-11-07"]
    assert [n for n, one in enumerate(entries, 1) if one["content"] == "The user bought a lamp."] == [5, 6]
    assert {entries[4]["type"], entries[5]["type"]} == {"transaction record"}
    assert entries[4]["timestamp"].endswith(":28")
    sessions = files["dialogue_situation_ids_en.json"]["0000"]
    first = files["input_en.json"]["0000"]["history"][0]["dialogue"]
    assert first["turn_1"]["user"] == {"action": "topic inquiry", "content": "What now?"}
    assert first["turn_2"]["user"] == {"action": "requirement confirmation", "content": "Yes."}
    dialogues = len(sessions["history"]) + len(sessions["query"])
    assert calls["mended"] == 1 + dialogues
    assert calls["faults"] == 8 + 1 + 2 * dialogues


def test_what_stays_faulty_is_left_out_of_logs_and_reported_of_dialogues(made):
    files, report, _ = made(lambda kind, text, n: faulty(kind, text, mend=False) or good(kind, text, n), reviews=1)
    assert len(files["log_en.json"]["0000"]["2024-11-07"]) == 18
    outcomes = Counter((one.step, one.outcome) for one in report.rejections)
    assert outcomes["log review", "left out"] == 1
    assert outcomes["dialogue review", "kept"] == len(files["requirement_framework_en.json"]["0000"])
    told = next(one.problems for one in report.rejections if one.step == "dialogue review")
    assert told == ("turn 1, user: hates that", "turn 2, user: asks for something else")


def test_faulty_logs_stay_where_too_few_would_be_left(made):
    def reply(kind, text, n):
        if kind == "contradictions" and "L1: " in text:
            return {kind: [{"record": f"L{n}", "reason": "cannot be"} for n in range(1, 7)]}
        if kind == "mended":
            return {kind: []}
        return good(kind, text, n)

    files, report, _ = made(reply, reviews=1)
    assert {len(entries) for entries in files["log_en.json"]["0000"].values()} == {20}
    assert {one.outcome for one in report.rejections if one.step == "log review"} == {"kept"}
    assert report.count("mending of logs", "given up") == 8


def test_findings_about_records_that_are_not_there_are_refused(made):
    def reply(kind, text, n):
        if kind == "faults" and "[[ ## logs ## ]]" in text:
            return {kind: [{"number": 99, "reason": "x"}]}
        if kind == "contradictions":
            return {kind: [{"record": "X3", "reason": "x"}]}
        return {kind: [{"turn": 99, "role": "user", "reason": "x"}]} if kind == "faults" else good(kind, text, n)

    files, report, calls = made(reply, reviews=1)
    assert validate_content(files) == []
    steps = {one.step for one in report.rejections if one.outcome == "given up"}
    assert steps == {"review of log types", "review against the persona", "review of actions"}
    assert calls["mended"] == 0


def validate_content(files):
    from mempiler.data.synthesis.palset.validate import faults

    return list(faults(files["input_en.json"]))


def test_without_reviews_nothing_is_looked_at_and_the_data_is_the_same(made):
    plain, _, calls = made(good, reviews=0)
    looked, _, _ = made(good, reviews=1, out="looked")
    assert plain == looked
    assert not {"faults", "contradictions", "mended"} & set(calls)


def test_the_seed_decides_hours_and_plans_and_threads_do_not(made):
    one, other = (made(good, seed=seed, out=str(seed))[0] for seed in (0, 1))
    assert one["timeline_en.json"] == other["timeline_en.json"]
    assert one["input_en.json"] != other["input_en.json"]
    assert made(good, out="again", threads=5)[0] == one


def test_a_stopped_run_goes_on_and_gives_what_an_unbroken_one_gives(made, tmp_path):
    """Stopped once in every stage, and gone on with each time."""
    whole, _, calls = made(good, reviews=1, out="unbroken")
    journal = tmp_path / "pal" / "generation" / "journal.jsonl"
    paid = 0
    for dies_at in ("people", "preferences", "situations", "logs", "contradictions", "analysis", "turns"):

        def dies(kind, text, n, dies_at=dies_at):
            if (kind, n) == (dies_at, 2 if dies_at != "people" else 1):
                raise KeyError("stopped")
            return good(kind, text, n)

        with pytest.raises(Exception, match="stopped"):
            made(dies, reviews=1)
        assert not list((tmp_path / "pal").glob("*.json"))
        assert len(journal.read_text().splitlines()) >= paid
        paid = len(journal.read_text().splitlines())
    resumed, report, rest = made(good, reviews=1)
    assert resumed == whole
    assert report.resumed.total() == paid
    assert sum(rest.values()) == sum(calls.values()) - paid > 0


def completion(body):
    """`good` over HTTP."""
    system, user = body["messages"][0]["content"], body["messages"][-1]["content"]
    kind = re.search(r"Your output fields are:\s*1\. `(\w+)`", system).group(1)
    reply = good(kind, user, 1)
    fields = [
        f"[[ ## {key} ## ]]\n{said if isinstance(said, str) else json.dumps(said)}" for key, said in reply.items()
    ]
    return "\n\n".join([*fields, "[[ ## completed ## ]]"])


@pytest.fixture
def command(tmp_path, capsys):
    """Runs `mempiler data make palset` into a folder; gives its exit code and output."""

    def run(*words):
        code = 0
        try:
            main(["data", "make", "palset", "--users", "1", "--months", "2", "--out", str(tmp_path / "o"), *words])
        except SystemExit as ended:
            code = ended.code
        return code or 0, capsys.readouterr()

    return run


def test_a_killed_process_is_gone_on_with_and_pays_only_for_what_is_missing(command, stub, tmp_path):
    server = stub(answer=completion)
    model = ["--lm", server.model, "--api-base", server.url, "--threads", "2"]
    words = ["data", "make", "palset", "--users", "1", "--months", "2", "--out", str(tmp_path / "o"), *model]
    journal = tmp_path / "o" / "generation" / "journal.jsonl"
    child = subprocess.Popen([sys.executable, "-m", "mempiler", *words], stdout=-3, stderr=-3)
    try:
        while child.poll() is None and (not journal.exists() or len(journal.read_bytes().splitlines()) < 25):
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    finally:
        child.kill()
        child.wait()
    paid, written = server.answered, len(journal.read_bytes().splitlines())
    assert child.returncode == -signal.SIGKILL
    assert paid >= 25
    code, printed = command(*model, "--resume", "--json")
    summary = json.loads(printed.out)
    assert code == 0
    assert validate(summary["files"][0]) == []
    # Only what was in flight on the two threads when the process died is paid for again.
    assert 25 <= written <= paid <= written + 2
    assert sum(row["resumed"] for row in summary["steps"]) == written
    assert abs(server.answered - written - sum(row["accepted"] for row in summary["steps"])) <= 2
    assert "use --on palbench --data" in printed.err


def test_the_command_stops_at_its_budget_and_goes_on(command, stub):
    server = stub(answer=completion)
    model = ["--lm", server.model, "--api-base", server.url, "--threads", "2", "--reviews", "0"]
    _, printed = command(*model, "--max-calls", "9")
    assert server.answered == 9
    assert "--resume goes on" in printed.err
    code, printed = command(*model)
    assert code == 2
    assert "go on with it by --resume" in printed.err


def test_the_offline_engine_ends_with_a_report_and_code_1(command, tmp_path):
    code, printed = command("--attempts", "2", "--json")
    assert code == 1
    summary = json.loads(printed.out)
    assert summary["files"] == []
    assert [one["step"] for one in summary["rejections"] if one["outcome"] == "given up"] == ["people", "user"]
    assert json.loads((tmp_path / "o" / "generation" / "report.json").read_text()) == summary
    assert "no user came through" in printed.err


@pytest.mark.parametrize(
    ("words", "message"),
    [(("--months", "1"), "'--months'"), (("--language", "fr"), "'--language'"), (("--users", "0"), "'--users'")],
)
def test_the_command_names_what_does_not_serve(command, words, message):
    code, printed = command(*words)
    assert code == 2
    assert message in printed.err
