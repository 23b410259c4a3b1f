"""PersonaLens's profiles: both layouts, the genuine one, what is none, and drawing users from them."""

import pytest
from mempiler.data.synthesis.memoryquest import choose
from mempiler.data.synthesis.personalens import read_profiles
from mempiler.errors import DataError, UserError

DOMAINS = {"Books": "Reads science fiction by the lake.", "Travel": "Takes night trains."}


def test_profiles_are_read_from_both_layouts_in_the_order_of_their_numbers(profiles):
    found = read_profiles(profiles)
    assert [profile.user_id for profile in found] == ["user2", "user10"]
    assert found[0].domain_summaries == {**DOMAINS, "Music": "Genre: jazz, soul; Format: vinyl"}


@pytest.mark.parametrize(
    ("content", "message"),
    [("[]", "demographics"), ('{"demographics": {}}', "nothing"), ("{", "not valid JSON"), (None, "holds no user")],
)
def test_what_is_no_profile_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "user0_profile.json").write_text(content)
    with pytest.raises(DataError, match=message):
        read_profiles(tmp_path)


def test_users_are_drawn_by_the_seed_and_keep_their_order(profiles):
    found = read_profiles(profiles)
    assert {choose(found, 1, seed)[0].user_id for seed in range(20)} == {"user2", "user10"}
    assert choose(found, 1, 3) == choose(found, 1, 3)
    assert choose(found, 2) == choose(found, None) == found
    with pytest.raises(UserError, match="lower --users"):
        choose(found, 3)
