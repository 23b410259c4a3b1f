"""Self-review: what each check lets through, in which order, as printed and as the equations say."""

import dspy
import pytest
from mempiler.programs.catalog import build


def run(scripted, script, history, **settings):
    script.change.setdefault("decisions", {"decisions": "-", "changes": []})
    lm = scripted(script)
    program = build("pramem", task="behavior-prediction", **{"rounds": 1, "min_history": 5, **settings})
    with dspy.context(lm=lm):
        return lm, program.remember(history).memory


def verdicts(field, key, values):
    rows = [{"proposal": f"r{n}", key: value} for n, value in enumerate(values, 1) if value != "missing"]
    return {field: rows}


def pooled(memory):
    return [p.content.split()[0] for p in memory.pool]


@pytest.mark.parametrize(
    ("said", "kept", "counts"),
    [
        ((True, True, True), ["one", "two", "three"], {"pooled": 3}),
        ((True, False, "Yes"), ["one", "three"], {"pooled": 2, "ungrounded": 1}),
        ((True, "missing", True), ["one", "three"], {"pooled": 2, "malformed": 1}),
        ((True, "perhaps", None), ["one"], {"pooled": 1, "malformed": 2}),
        ((False, False, False), [], {"ungrounded": 3}),
    ],
)
def test_groundedness_lets_through_what_the_perturbation_overturns(
    scripted, practice_script, behavior_history, said, kept, counts
):
    script = practice_script(groundedness=verdicts("groundedness", "sensitive", said))
    _, memory = run(scripted, script, behavior_history())
    assert pooled(memory) == kept
    assert memory.counts == counts


@pytest.mark.parametrize(
    ("said", "kept", "counts"),
    [
        ((True, False, True), ["one", "three"], {"pooled": 2, "specific": 1}),
        (("missing", "missing", True), ["three"], {"pooled": 1, "malformed": 2}),
        ((0.5, "no", "true"), ["three"], {"pooled": 1, "malformed": 1, "specific": 1}),
    ],
)
def test_generality_lets_through_what_does_not_single_the_scene_out(
    scripted, practice_script, behavior_history, said, kept, counts
):
    script = practice_script(generality=verdicts("generality", "general", said))
    _, memory = run(scripted, script, behavior_history())
    assert pooled(memory) == kept
    assert memory.counts == counts


def test_two_verdicts_that_contradict_each_other_are_none(scripted, practice_script, behavior_history):
    rows = [*verdicts("g", "general", (True, True, True))["g"], {"proposal": "[r2]", "general": False}]
    _, memory = run(scripted, practice_script(generality={"generality": rows}), behavior_history())
    assert memory.counts == {"pooled": 2, "malformed": 1}


def test_generality_is_asked_of_what_is_grounded_alone(scripted, practice_script, behavior_history, prompt_section):
    script = practice_script(groundedness=verdicts("groundedness", "sensitive", (False, True, False)))
    lm, _ = run(scripted, script, behavior_history())
    ((_, text),) = [prompt for prompt in lm.engine.prompts if prompt[0] == "generality"]
    shown = prompt_section(text, "proposals")
    assert "two of" in shown
    assert "one of" not in shown
    assert prompt_section(text, "candidates").startswith("A. video; situation-")


def test_scenes_that_repeat_or_are_the_true_one_do_not_count(scripted, practice_script, behavior_history):
    def scenes(text, n):
        true = text.rsplit("[[ ## situation ## ]]", 1)[1].split("[[ ##")[0].strip().splitlines()[0]
        return {"virtual_scenes": [true.upper(), " ", true]}

    lm, memory = run(scripted, practice_script(virtual_scenes=scenes), behavior_history())
    assert memory.counts == {"malformed": 3}
    assert lm.engine.calls["generality"] == 0


def test_long_scenes_are_cut_for_their_review(scripted, practice_script, behavior_history, prompt_section):
    lm, _ = run(scripted, practice_script(), behavior_history(), scene_chars=8)
    fields = {"virtual_scenes": "situation", "generality": "candidates"}
    shown = {kind: prompt_section(text, fields[kind]) for kind, text in lm.engine.prompts if kind in fields}
    assert shown["virtual_scenes"].splitlines()[0] == "video; s..."
    assert shown["generality"].startswith("A. video; s...\n")


@pytest.mark.parametrize(
    ("off", "kinds", "kept"),
    [
        ("groundedness", {"plans", "groundedness"}, {"virtual_scenes", "generality"}),
        ("generalizability", {"virtual_scenes", "generality"}, {"plans", "groundedness"}),
    ],
)
def test_a_review_that_is_off_asks_and_rejects_nothing(scripted, practice_script, behavior_history, off, kinds, kept):
    script = practice_script(plans="no", virtual_scenes="no")
    lm, memory = run(scripted, practice_script(), behavior_history(), **{off: False})
    assert kinds.isdisjoint(lm.engine.calls)
    assert kept <= set(lm.engine.calls)
    assert memory.counts == {"pooled": 3}
    _, memory = run(scripted, script, behavior_history(), groundedness=False, generalizability=False)
    assert memory.counts == {"pooled": 3}


@pytest.mark.parametrize(("second", "kept"), [(True, ["one", "two"]), (False, ["one"])])
def test_of_several_perturbations_one_must_overturn_a_proposal(
    scripted, practice_script, behavior_history, second, kept
):
    def judge(text, n):
        first = "all reversed" in text
        return verdicts("groundedness", "sensitive", (True, False, False) if first else (False, second, False))

    plans = [{"direction": "all reversed"}, {"direction": "likes only", "details": None}, {"direction": "one too many"}]
    script = practice_script(plans={"plans": plans}, groundedness=judge)
    lm, memory = run(scripted, script, behavior_history(), perturbations=2)
    assert pooled(memory) == kept
    assert lm.engine.calls["groundedness"] == 2


@pytest.mark.parametrize(
    ("said", "counts"),
    [((True, True, True), {"pooled": 3}), ((True, False, "missing"), {"pooled": 1, "ungrounded": 1, "malformed": 1})],
)
def test_an_executed_perturbation_is_judged_on_the_rewritten_records(
    scripted, practice_script, behavior_history, prompt_section, said, counts
):
    script = practice_script(holding=verdicts("holding", "overturned", said))
    lm, memory = run(scripted, script, behavior_history(), execute_perturbation=True)
    assert memory.counts == counts
    assert lm.engine.calls["groundedness"] == 0
    ((_, text),) = [prompt for prompt in lm.engine.prompts if prompt[0] == "holding"]
    target = int(memory.journal[0].record[1:])
    given = prompt_section(text, "given_records")
    assert given.count("=> reversed-a") == target - 1
    assert "=> action-" not in given
    assert f"=> action-{target}-x" in prompt_section(text, "outcome")


@pytest.mark.parametrize("rewritten", ["no", {"rewritten": []}, {"rewritten": [{"record": "zz", "action": "x"}]}])
def test_a_perturbation_that_changes_nothing_rejects_all(scripted, practice_script, behavior_history, rewritten):
    script = practice_script(rewritten=rewritten)
    lm, memory = run(scripted, script, behavior_history(), execute_perturbation=True)
    assert memory.counts == {"malformed": 3}
    assert lm.engine.calls["holding"] == 0


def test_blind_proposals_must_not_find_the_true_scene_among_all(
    scripted, practice_script, behavior_history, prompt_section
):
    def picks(text, n):
        lines = prompt_section(text, "candidates").splitlines()
        true = next(line[0] for line in lines if "situation-" in line)
        other = next(line[0] for line in lines if "virtual" in line)
        rows = [("r1", f"({true.lower()})"), ("r2", other), ("r3", None)]
        return {"picks": [{"proposal": id, "letter": letter} for id, letter in rows]}

    lm, memory = run(scripted, practice_script(picks=picks), behavior_history(), blind=True)
    assert pooled(memory) == ["two", "three"]
    assert memory.counts == {"pooled": 2, "specific": 1}
    assert lm.engine.calls["generality"] == 0


def test_blind_scenes_are_shuffled_and_a_letter_without_a_scene_is_no_answer(
    scripted, practice_script, behavior_history, prompt_section
):
    script = practice_script(picks=verdicts("picks", "letter", ("Z", "missing", "none")))
    lm, memory = run(scripted, script, behavior_history(60), blind=True, rounds=12)
    assert memory.counts == {"pooled": 12, "malformed": 24}
    texts = [prompt_section(text, "candidates") for kind, text in lm.engine.prompts if kind == "picks"]
    places = {next(line[0] for line in text.splitlines() if "situation-" in line) for text in texts}
    assert len(places) > 2
    assert all(len(text.splitlines()) >= 8 for text in texts)
