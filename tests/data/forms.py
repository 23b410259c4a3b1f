"""Small files of every benchmark's form, and how they are changed, written and loaded."""

from __future__ import annotations

import copy
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
from mempiler.data.benchmark import Benchmark
from mempiler.data.catalog import benchmark

Files = dict[str, Any]
Change = Callable[[Any], Any]


def video(time: str, *reactions: str, **context: Any) -> dict[str, Any]:
    """A record of OmniBehavior: a video, and what the user did with it."""
    about = {"caption": f"At {time}", **context}
    done = [{"type": kind} for kind in reactions]
    return {"type": "Video Browsing", "timestamp": time, "context": about, "action": done}


PREPARED: Files = {
    "experiment_data.json": {
        "metadata": {},
        "users": [
            {
                "user_id": "p1",
                "user_profile": "",
                "base_history": [video("2025-09-01 10:00:00")],
                "test_time_all_actions": [video(f"2025-10-0{n} 10:00:00", *["like"][n != 4 :]) for n in range(1, 6)],
                "test_actions": [{"test_time_index": 3}, {"test_time_index": 1}],
            }
        ],
    }
}
"""OmniBehavior's other form."""


def talk(number: int, month: int) -> dict[str, Any]:
    """A sample of PAL-Set."""
    sides = {"pos": [f"liked {number}a", f"liked {number}b"], "neg": [f"hated {number}a", f"hated {number}b"]}
    feedback = [*((one, "neg") for one in sides["neg"]), *((one, "neu") for one in "wxyz")]
    feedback += [(one, "pos") for one in sides["pos"]]
    return {
        "sample_id": f"u1_sample{number}",
        "dialogue_timestamp": f"2024-0{month}-20 20:00:00",
        "logs": [
            {"timestamp": f"2024-0{month}-18 08:00", "content": f"log {number}a"},
            {"timestamp": f"2024-0{month}-20 20:00", "content": f"log {number}b"},
        ],
        "dialogue": {
            "turn_2": {"user": {"action": "x", "content": f"yes {number}"}, "assistant": {"content": f"so {number}"}},
            "turn_1": {"user": {"content": f"help {number}?"}, "assistant": {"content": f"why {number}?"}},
        },
        "topics": {
            "topic-1": {
                "user_query": f"query {number}",
                "implicit_needs": [f"need {number}a", f"need {number}b"],
                "requirement": f"requirement {number}",
                "solution": sides,
                "candidate_solutions": [{"solution": one, "feedback": said} for one, said in feedback],
            }
        },
    }


CHAT = [{"role": "user", "content": "I like tea."}, {"role": "assistant", "content": "Noted."}]
FORMS: dict[str, Files] = {
    "omnibehavior": {
        "user.json": {
            "u1": {
                "user_profile": "Lives in Xiamen.",
                "action_history": [video(f"2025-{month}-02 10:00:00", "like") for month in ("09", "10")],
            }
        }
    },
    "palbench.restate": {
        "input.json": {"u1": {"history": [talk(0, 1), talk(1, 2)], "query": [talk(2, 3), talk(3, 4)]}},
        "background/background.json": {"u1": {"gender": "f", "personality": {"Openness": "low"}}},
        "situation.json": {"u1": {"2024-03-20": {"situation": "moved", "requirement_ids": ["work-2"]}}},
        "preference.json": {"u1": {"work": {"work-2": {"preference": {"pos": "calm", "neg": "noise"}}}}},
        "framework/requirement_framework.json": {
            "u1": {"2024-03-20": {"topic-1": {"implicit_needs": [{"need": "n", "evidences": ["log 2b", "elsewhere"]}]}}}
        },
    },
    "jsonl": {"own.jsonl": [{"messages": CHAT, "question": "What does the user like?", "answer": "tea"}]},
    "locomo": {
        "locomo.json": [
            {
                "sample_id": "conv-1",
                "conversation": {
                    "speaker_a": "Ann",
                    "session_10_date_time": "12:05 am on 9 June, 2023",
                    "session_10": [{"speaker": "Ann", "dia_id": "D10:1", "text": "It is June."}],
                    "session_2_date_time": "1:56 pm on 8 May, 2023",
                    "session_2": [
                        {"speaker": "Ann", "dia_id": "D2:1", "text": "Look!", "blip_caption": "a cat", "img_url": []},
                        {"speaker": "Bo", "dia_id": "D2:2", "text": "Nice."},
                    ],
                },
                "qa": [{"question": "Who?", "answer": "Ann", "evidence": ["D2:1"], "category": 4}],
            }
        ]
    },
    "longmemeval": {
        "longmemeval_oracle.json": [
            {
                "question_id": "q1",
                "question_type": "multi-session",
                "question": "How many plants did I buy?",
                "answer": 3,
                "question_date": "2023/04/10 (Mon) 23:07",
                "haystack_dates": ["2023/03/05 (Sun) 10:00", "2023/03/01 (Wed) 09:30", "2023/03/02 (Thu) 08:00"],
                "haystack_session_ids": ["answer_b", "sharegpt_x", "answer_a"],
                "haystack_sessions": [
                    [
                        {"role": "user", "content": "I bought a fern.", "has_answer": True},
                        {"role": "assistant", "content": "Nice.", "has_answer": False},
                    ],
                    [{"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Hi."}],
                    [{"role": "user", "content": "Two palms came home with me.", "has_answer": True}],
                ],
                "answer_session_ids": ["answer_a", "answer_b"],
            }
        ]
    },
    "msc": {
        "msc.jsonl": [
            {
                "personas": [["I fish."], ["I sing."]],
                "previous_dialogs": [
                    {"dialog": [{"text": "Hi!"}, {"text": "Hello, I sing."}], "time_back": "5 days ago"},
                    {"dialog": [{"text": "I fish."}, {"text": "Trout?"}], "time_back": "2 days 3 hours ago"},
                ],
                "dialog": [{"id": "Speaker 1", "text": "Trout!"}, {"id": "Speaker 2", "text": "Tasty."}],
                "metadata": {"initial_data_id": "valid_7", "session_id": 4},
                "self_instruct": {"B": "What do you fish for?", "A": "Trout!"},
            }
        ]
    },
    "implexconv": {
        "implex.json": [
            {
                "conversation": [
                    "Speaker1: Which film should I see?\n\nAssistant: The one about the cook.",
                    "Speaker1: My ankle is torn and in plaster.\n\nAssistant: No jumping until the plaster is off.",
                ],
                "qa": [
                    {
                        "question": "Which sport?",
                        "answer": "Archery.",
                        "retrieved_conv": "Speaker1: My ankle is torn and in plaster.\n\n"
                        "Assistant: No jumping until the plaster is off.",
                        "opposed reasoning": "The ankle is torn.",
                    }
                ],
            }
        ]
    },
    "memoryquest": {
        "user1.json": {
            "user_id": "ann",
            "demographics": {"age": "40"},
            "domain_summaries": {"food": "Cooks."},
            "sessions": [
                {
                    "session_id": "a",
                    "date": "2024-03-05",
                    "turns": [
                        {"speaker": "user", "text": "Which tea is best?"},
                        {"speaker": "assistant", "text": "Which do you like?"},
                        {"speaker": "user", "text": "My knee hurts since Monday."},
                    ],
                },
                {"session_id": "b", "date": "2024-04-05", "turns": [{"speaker": "user", "text": "I work at night."}]},
                {"session_id": "c", "date": "2024-06-05", "turns": [{"speaker": "user", "text": "I adopted a cat."}]},
            ],
            "queries": [
                {
                    "query_id": "q1",
                    "query": "Plan my week",
                    "date": "2024-06-01",
                    "reasoning": "Both limit it.",
                    "references": [
                        {"text": "Has a bad knee", "date": "2024-03-05", "session_id": "a", "turns": [3]},
                        {"text": "Works at night", "date": "2024-04-05", "session_id": "b"},
                    ],
                }
            ],
        }
    },
    "personamem": {
        "questions_32k.csv": [
            {
                "persona_id": "7",
                "question_id": "q1",
                "question_type": "suggest_new_ideas",
                "topic": "music",
                "user_question_or_message": "What now?",
                "correct_answer": "(b)",
                "all_options": "['(a) Jazz.', \"(b) It's silence.\", '(c) Rock.', '(d) Pop.']",
                "shared_context_id": "c1",
                "end_index_in_shared_context": "6",
            }
        ],
        "shared_contexts_32k.jsonl": [
            {
                "c1": [
                    {"role": "system", "content": "Current user persona: Ann"},
                    {"role": "user", "content": "I like jazz."},
                    {"role": "assistant", "content": "Noted."},
                    {"role": "system", "content": "Current user persona: Ann"},
                    {"role": "user", "content": "I gave up jazz."},
                    {"role": "user", "content": "It was too loud."},
                ]
            }
        ],
    },
    "personamem-v2": {
        "benchmark/text/benchmark.csv": [
            {
                "persona_id": "7",
                "chat_history_32k_link": "data/talk.json",
                "chat_history_128k_link": "data/long.json",
                "user_query": repr({"role": "user", "content": "Where should I stay? It's late."}),
                "correct_answer": "On the camp site.",
                "incorrect_answers": json.dumps(["In a hotel.", "At home.", "In a castle."]),
                "preference": "Prefers tents",
                "pref_type": "neutral_pref",
                "related_conversation_snippet": json.dumps([{"role": "user", "content": "I sleep best in a tent."}]),
                "sensitive_info": "False",
            }
        ],
        "data/talk.json": {
            "metadata": {},
            "chat_history": [
                {"role": "system", "content": "You talk to Ann."},
                {"role": "user", "content": "I sleep best in a tent."},
                {"role": "assistant", "content": "Noted."},
            ],
        },
    },
}
"""By benchmark, and by the path of each file: a JSON value, the rows of a CSV or of JSON lines, or a text."""


def first(name: str, files: Files) -> Any:
    """What most changes are made to: the first row, user or conversation of the first file."""
    value = next(iter(files.values()))
    return value[0] if isinstance(value, list) else value


def changed(name: str, change: Change) -> Files:
    """The files of a form, with a change of the first row."""
    files = copy.deepcopy(FORMS[name])
    change(first(name, files))
    return files


def put(*keys: Any, value: Any = ...) -> Change:
    """A change that sets what is at the end of some keys, or deletes it."""

    def change(row: Any) -> None:
        for key in keys[:-1]:
            row = row[key]
        if value is ...:
            del row[keys[-1]]
        elif keys[-1] == "+":
            row.append(value)
        else:
            row[keys[-1]] = value

    return change


def encoded(path: str, value: Any) -> bytes:
    """What a file holds."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("latin-1" if path.endswith(".dat") else "utf-8")
    if path.endswith(".csv"):
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(value[0]))
        writer.writeheader()
        writer.writerows(value)
        return text.getvalue().encode()
    if path.endswith(".jsonl"):
        return "\n".join(row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in value).encode()
    return json.dumps(value, ensure_ascii=False).encode()


def write(folder: Path, files: Files) -> Path:
    """Writes files; gives the path of the first, which is the one to name."""
    for name, value in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(encoded(name, value))
    return folder / next(iter(files))


def load(folder: Path, name: str, change: Change = lambda row: None, **options: Any) -> Benchmark:
    """The benchmark of a form, with a change of the first row."""
    return benchmark(name, write(folder, changed(name, change)), **options)


def lines(example: dspy.Example) -> list[str]:
    """The turns of an example's history."""
    return [turn.line() for item in example.history for turn in item.turns]
