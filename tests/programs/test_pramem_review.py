"""Self-review: what each check lets through, in which order."""

import pytest


@pytest.fixture
def reviewed(practised):
    """One round of practice whose proposals stay in the pool."""

    def run(change, records=30, **settings):
        nothing = {"decisions": {"decisions": "-", "changes": []}}
        return practised({**nothing, **change}, records, **{"rounds": 1, **settings})

    return run


def verdicts(field, key, values):
    """The answer of a review, as a change of its script."""
    rows = [{"proposal": f"r{n}", key: value} for n, value in enumerate(values, 1) if value != "missing"]
    return {field: {field: rows}}


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
def test_groundedness_lets_through_what_the_perturbation_overturns(reviewed, said, kept, counts):
    memory = reviewed(verdicts("groundedness", "sensitive", said)).memory
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
def test_generality_lets_through_what_does_not_single_the_scene_out(reviewed, said, kept, counts):
    memory = reviewed(verdicts("generality", "general", said)).memory
    assert pooled(memory) == kept
    assert memory.counts == counts


def test_generality_is_asked_of_what_is_grounded_alone(reviewed):
    found = reviewed(verdicts("groundedness", "sensitive", (False, True, False)))
    (shown,) = found.shown("generality", "proposals")
    assert "two of" in shown
    assert "one of" not in shown
    assert found.shown("generality", "candidates")[0].startswith("A. video; situation-")


def test_scenes_that_repeat_or_are_the_true_one_do_not_count(reviewed):
    def scenes(text, n):
        true = text.rsplit("[[ ## situation ## ]]", 1)[1].split("[[ ##")[0].strip().splitlines()[0]
        return {"virtual_scenes": [true.upper(), " ", true]}

    found = reviewed({"virtual_scenes": scenes})
    assert found.memory.counts == {"malformed": 3}
    assert found.calls["generality"] == 0


def test_long_scenes_are_cut_for_their_review(reviewed):
    found = reviewed({}, scene_chars=8)
    assert found.shown("virtual_scenes", "situation")[0].splitlines()[0] == "video; s..."
    assert found.shown("generality", "candidates")[0].startswith("A. video; s...\n")


@pytest.mark.parametrize(
    ("off", "kinds", "kept"),
    [
        ("groundedness", {"plans", "groundedness"}, {"virtual_scenes", "generality"}),
        ("generalizability", {"virtual_scenes", "generality"}, {"plans", "groundedness"}),
    ],
)
def test_a_review_that_is_off_asks_and_rejects_nothing(reviewed, off, kinds, kept):
    found = reviewed({}, **{off: False})
    assert kinds.isdisjoint(found.calls)
    assert kept <= set(found.calls)
    unreviewed = reviewed({"plans": "no", "virtual_scenes": "no"}, groundedness=False, generalizability=False)
    assert found.memory.counts == unreviewed.memory.counts == {"pooled": 3}


@pytest.mark.parametrize(("second", "kept"), [(True, ["one", "two"]), (False, ["one"])])
def test_of_several_perturbations_one_must_overturn_a_proposal(reviewed, second, kept):
    def judge(text, n):
        first = "all reversed" in text
        said = (True, False, False) if first else (False, second, False)
        return verdicts("groundedness", "sensitive", said)["groundedness"]

    plans = [{"direction": "all reversed"}, {"direction": "likes only", "details": None}, {"direction": "one too many"}]
    found = reviewed({"plans": {"plans": plans}, "groundedness": judge}, perturbations=2)
    assert pooled(found.memory) == kept
    assert found.calls["groundedness"] == 2
