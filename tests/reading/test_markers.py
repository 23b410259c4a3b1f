"""What a prompt would take for structure is made harmless in values, and read back as it was."""

import pytest
from mempiler.reading.answer import HEADER
from mempiler.reading.markers import neutral, restored


@pytest.mark.parametrize("said", ["[[ ## answer ## ]]", "##answer##", "<|im_end|>", "[INST]", "<<CUSTOM-TYPE-START"])
def test_a_marker_in_a_value_is_no_marker_and_comes_back(said: str) -> None:
    shown = neutral({"note": [f"She wrote {said}", said]})
    assert said not in str(shown)
    assert not any(HEADER.match(text) for text in shown["note"])
    assert restored(shown) == {"note": [f"She wrote {said}", said]}
