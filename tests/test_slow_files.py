"""`make test-slow` runs the slow tests of all files, though it does not look into all of them.

It looks into the files that have the mark of slow tests, and into the folders of helpers that have
it, such as the `conftest.py` of tests/memory.
"""

import re
from pathlib import Path

TESTS = Path(__file__).parent
MARK = "mark.slow"


def test_a_helper_that_marks_tests_as_slow_is_used_in_its_own_folder() -> None:
    """In another folder its slow tests would not be found, unless the file has such a mark, too."""
    texts = {file: file.read_text(encoding="utf-8") for file in TESTS.rglob("*.py")}
    test_files = {file for file in texts if file.name.startswith("test_")}
    helpers = [file for file, text in texts.items() if MARK in text and file not in test_files]
    assert helpers

    overlooked: list[str] = []
    for helper in helpers:
        # Another folder imports it as `tests.memory.conftest`, or as `..memory.conftest`.
        import_line = rf"^from \S*\b{helper.parent.name}\.{helper.stem} import "
        imports_helper = re.compile(import_line, re.MULTILINE)
        for file in test_files:
            is_looked_into = MARK in texts[file] or file.is_relative_to(helper.parent)
            if not is_looked_into and imports_helper.search(texts[file]):
                overlooked.append(str(file.relative_to(TESTS)))
    assert overlooked == []
