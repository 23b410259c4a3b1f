"""action.yml: the GitHub action that runs `mempiler check` in a job of one's own.

GitHub cannot be run here. So the script of the action runs with a command `mempiler` that only
writes down its words.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from mempiler.cli import app

ROOT = Path(__file__).parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
(CHECK_STEP,) = [step for step in STEPS if step.get("name") == "Check"]

FAKE_COMMAND = """\
#!/bin/bash
printf '%s\\n' "$@" > "$WORDS_FILE"
if [ -z "$NO_SUMMARY" ]; then echo "the summary" > "$FOLDER/summary.md"; fi
exit "$EXIT_CODE"
"""
"""Writes its words into a file, one a line, and a summary."""


class Job:
    """A job in which the script of the action runs.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.words_file = folder / "words"
        self.step_summary = folder / "step-summary.md"
        command = folder / "bin" / "mempiler"
        command.parent.mkdir()
        command.write_text(FAKE_COMMAND)
        command.chmod(0o755)

    def run(self, exit_code: int = 0, has_summary: bool = True, **inputs: str) -> int:
        """Run the script as GitHub does; return its exit code.

        Args:
            exit_code: That of the command.
            has_summary: Whether the command writes a summary.
            **inputs: The variables of the step, such as MODELS.
        """
        variables = dict.fromkeys(CHECK_STEP["env"], "")
        environment = {
            **variables,
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "FOLDER": str(self.folder / "check"),
            "GITHUB_STEP_SUMMARY": str(self.step_summary),
            "WORDS_FILE": str(self.words_file),
            "EXIT_CODE": str(exit_code),
            "NO_SUMMARY": "" if has_summary else "1",
            **inputs,
        }
        script = self.folder / "script.sh"
        script.write_text(CHECK_STEP["run"])
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        return subprocess.run(command, env=environment, cwd=self.folder, check=False).returncode

    @property
    def words(self) -> list[str]:
        """The words of the command."""
        return self.words_file.read_text().splitlines()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job with a command `mempiler` that does nothing."""
    return Job(tmp_path)


def test_every_option_of_the_action_is_one_of_the_command(job: Job) -> None:
    """The action runs "mempiler check new --against old ..."; here the command line parses that."""
    job.run(PROGRAM="new", AGAINST="old", DATA="q.jsonl", MODELS="openai/a", FLOORS="score=.5")

    command_name, *words = job.words
    command = app.get_command(click.Context(app), command_name)
    assert command is not None
    parsed, _, _ = command.make_parser(click.Context(command)).parse_args(words)
    assert parsed["program"] == "new"
    assert parsed["against"] == "old"
    assert parsed["data"] == "q.jsonl"


def test_several_models_and_floors_become_options_of_their_own(job: Job) -> None:
    job.run(PROGRAM="new", AGAINST="old", MODELS="openai/a\nopenai/b", FLOORS="recall@20=.7 f1=.5")

    words = " ".join(job.words)
    assert "--lm openai/a --lm openai/b --floor recall@20=.7 --floor f1=.5" in words


def test_no_data_and_no_model_leave_the_options_out(job: Job) -> None:
    job.run(PROGRAM="new", AGAINST="old")

    assert "--data" not in job.words
    assert "--lm" not in job.words


def test_a_text_of_an_input_is_no_code_and_no_pattern(job: Job) -> None:
    """A pull request may hold any text; `*` would become the files of the folder."""
    job.run(PROGRAM="$(touch evil); `touch evil`", AGAINST="old", FLOORS="*")

    assert job.words[1] == "$(touch evil); `touch evil`"
    assert job.words[job.words.index("--floor") + 1] == "*"
    assert not (job.folder / "evil").exists()


def test_no_script_holds_an_input() -> None:
    """GitHub would put the text of the input in the place of `${{ inputs.x }}`, as code."""
    scripts = [step["run"] for step in STEPS if "run" in step]

    assert len(scripts) == 2
    assert [script for script in scripts if "${{" in script] == []


@pytest.mark.parametrize("exit_code", [0, 1, 2, 4])
def test_the_step_ends_with_the_code_of_the_command(job: Job, exit_code: int) -> None:
    step_exit_code = job.run(exit_code, PROGRAM="new", AGAINST="old")

    assert step_exit_code == exit_code


@pytest.mark.parametrize("exit_code", [0, 1])
def test_the_summary_is_added_to_that_of_the_job(job: Job, exit_code: int) -> None:
    """GitHub shows a summary of a job, to which each of its steps may add a text."""
    job.step_summary.write_text("of an earlier step\n")

    job.run(exit_code, has_summary=True, PROGRAM="new", AGAINST="old")

    assert job.step_summary.read_text() == "of an earlier step\nthe summary\n"


def test_a_check_that_ends_in_an_error_has_no_summary(job: Job) -> None:
    job.step_summary.write_text("of an earlier step\n")

    step_exit_code = job.run(3, has_summary=False, PROGRAM="new", AGAINST="old")

    assert step_exit_code == 3
    assert job.step_summary.read_text() == "of an earlier step\n"


def test_every_input_is_declared_and_used() -> None:
    """An input is declared under "inputs", and used as ${{ inputs.NAME }}."""
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    used_inputs = set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", text))

    declared_inputs = set(ACTION["inputs"])
    assert used_inputs == declared_inputs


def test_the_example_in_the_documentation_gives_declared_inputs_and_all_required_ones() -> None:
    """docs/check.md shows a workflow for GitHub, whose second step uses this action."""
    page = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    action_step = yaml.safe_load(example)["jobs"]["memory"]["steps"][1]
    inputs_of_example = set(action_step["with"])

    declared_inputs = ACTION["inputs"]
    required_inputs = {name for name, details in declared_inputs.items() if details.get("required")}
    assert inputs_of_example <= set(declared_inputs)
    assert required_inputs <= inputs_of_example


def test_answers_of_models_are_kept_from_job_to_job() -> None:
    """DSPy's cache of answers and our cache of vectors lie in the folder that is kept."""
    (cache_step,) = [step for step in STEPS if step.get("uses", "").startswith("actions/cache@")]
    kept_folder = cache_step["with"]["path"]

    assert CHECK_STEP["env"]["DSPY_CACHEDIR"].startswith(f"{kept_folder}/")
    assert CHECK_STEP["env"]["XDG_CACHE_HOME"].startswith(f"{kept_folder}/")


def test_the_results_are_uploaded_even_if_the_check_fails() -> None:
    """GitHub skips the steps after one that failed, but not one with "if: always()"."""
    (upload_step,) = [step for step in STEPS if "upload-artifact" in step.get("uses", "")]

    assert upload_step["if"] == "always()"
    assert "junit.xml" in upload_step["with"]["path"]
