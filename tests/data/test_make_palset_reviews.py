"""Records of a PAL-Set are looked over: what is found faulty is mended, left out or reported."""

from collections import Counter

from .conftest import field, good

LOG, WORDS = "The user searched for thing 4 of 11-01 and viewed it.", "turn 2 | user"


def faulty(kind, text, mend=True):
    """A model that finds two faulty log entries and two faulty utterances in the first week, and mends them if so told.

    None where nothing is faulty.
    """
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
        said = {1: "What now?" if mend else "I speak of T1_Q", 2: "Yes." if mend else "I speak of T1_N1"}
        places = [(int(turn.split()[1]), role) for turn, role in told]
        return {kind: [{"turn": turn, "role": role, "content": said[turn]} for turn, role in places]}
    return None


def test_faults_are_mended_and_what_was_mended_is_looked_at_again(made_palset):
    files, report, calls = made_palset(lambda kind, text, n: faulty(kind, text) or good(kind, text, n), reviews=1)
    assert report.rejections == []
    entries = files["log_en.json"]["0000"]["2024-11-07"]
    assert [n for n, one in enumerate(entries, 1) if one["content"] == "The user bought a lamp."] == [5, 6]
    assert {entries[4]["type"], entries[5]["type"]} == {"transaction record"}
    assert entries[4]["timestamp"].endswith(":28")
    first = files["input_en.json"]["0000"]["history"][0]["dialogue"]
    assert first["turn_1"]["user"] == {"action": "topic inquiry", "content": "What now?"}
    assert first["turn_2"]["user"] == {"action": "requirement confirmation", "content": "Yes."}
    dialogues = sum(map(len, files["input_en.json"]["0000"].values()))
    assert calls["mended"] == 1 + dialogues
    assert calls["faults"] == 8 + 1 + 2 * dialogues


def test_what_stays_faulty_is_left_out_of_logs_and_reported_of_dialogues(made_palset):
    files, report, _ = made_palset(
        lambda kind, text, n: faulty(kind, text, mend=False) or good(kind, text, n), reviews=1
    )
    assert len(files["log_en.json"]["0000"]["2024-11-07"]) == 18
    outcomes = Counter((one.step, one.outcome) for one in report.rejections)
    assert outcomes["log review", "left out"] == 1
    assert outcomes["dialogue review", "kept"] == len(files["requirement_framework_en.json"]["0000"])
    told = next(one.problems for one in report.rejections if one.step == "dialogue review")
    assert told == ("turn 1, user: hates that", "turn 2, user: asks for something else")


def test_faulty_logs_stay_where_too_few_would_be_left(made_palset):
    def reply(kind, text, n):
        if kind == "contradictions" and "L1: " in text:
            return {kind: [{"record": f"L{n}", "reason": "cannot be"} for n in range(1, 7)]}
        if kind == "mended":
            return {kind: []}
        return good(kind, text, n)

    files, report, _ = made_palset(reply, reviews=1)
    assert {len(entries) for entries in files["log_en.json"]["0000"].values()} == {20}
    assert {one.outcome for one in report.rejections if one.step == "log review"} == {"kept"}
    assert report.count("mending of logs", "given up") == 8


def test_findings_about_records_that_are_not_there_are_refused(made_palset):
    def reply(kind, text, n):
        if kind == "faults" and "[[ ## logs ## ]]" in text:
            return {kind: [{"number": 99, "reason": "x"}]}
        if kind == "contradictions":
            return {kind: [{"record": "X3", "reason": "x"}]}
        return {kind: [{"turn": 99, "role": "user", "reason": "x"}]} if kind == "faults" else good(kind, text, n)

    files, report, calls = made_palset(reply, reviews=1)
    assert list(files["input_en.json"]) == ["0000"]
    steps = {one.step for one in report.rejections if one.outcome == "given up"}
    assert steps == {"review of log types", "review against the persona", "review of actions"}
    assert calls["mended"] == 0


def test_without_reviews_nothing_is_looked_at_and_the_data_is_the_same(made_palset):
    plain, _, calls = made_palset(good, reviews=0)
    looked, _, _ = made_palset(good, reviews=1, out="looked")
    assert plain == looked
    assert not {"faults", "contradictions", "mended"} & set(calls)
