"""The mutations of what the methods stand on: budgets, runs, saved programs, the store, memory keys, reading, access.

Their groups have few and fast test files. Texts are the shortest that say what is broken, so that they survive a move.
"""

from __future__ import annotations

from mutations import of

ROOM_TESTS = {
    "budget": ("tests/engines/test_guard.py",),
    "resume": ("tests/runs/test_run_store.py",),
    "statistics": ("tests/runs/test_statistics.py", "tests/runs/test_promotion.py"),
    "saved": ("tests/runs/test_artifact.py", "tests/runs/test_destinations.py"),
    "queue": ("tests/memory/test_store_memories.py", "tests/memory/test_store_items.py"),
    "forgetting": (
        *("tests/memory/test_store_forgetting.py", "tests/memory/test_store_items.py"),
        "tests/memory/test_store_memories.py",
    ),
    "deltas": ("tests/memory/test_indexes.py",),
    "keys": ("tests/programs/test_remember.py",),
    "reading": ("tests/reading/test_answer.py", "tests/programs/test_adapter.py"),
    "access": (
        *("tests/serving/test_tokens_and_limits.py", "tests/serving/test_operations.py"),
        "tests/serving/test_client.py",
    ),
}
"""Where the tests of each group are."""

BUDGET = of(
    "budget",
    "engines",
    (
        "guard",
        "spent_of(self._until_now(), each) >= limit:",
        "spent_of(self._until_now(), each) > limit:",
        "one call too many",
    ),
    ("guard", "while self.dead is None and self._taken_up():", "while False:", "calls in flight overrun a limit"),
    ("guard", "max(0, limit - spent_of(reserve, each))", "limit", "a phase keeps nothing back"),
    ("guard", "elif self._row >= DEAD_AFTER:", "elif False:", "a dead endpoint is asked on"),
    ("guard", "self._row, self._done = 0, self._done + 1", "self._done += 1", "an answer ends no row of failures"),
    ("guard", "self._spent -= Spending(calls=1)", "self._spent -= Spending()", "a cached answer is charged"),
    ("guard", "Spending(calls - 1, tokens, cost", "Spending(calls - 1, 2 * tokens, cost", "tokens count twice"),
    (
        "meter",
        "Counter({self.role: calls})",
        "Counter({self.role: 1})",
        "one of n counts",
    ),
)
RESUME = (
    *of(
        "resume",
        "runs",
        ("run_store", '{self._made[key]}"', '0"', "sampled answers are one"),
        ("run_store", 'self.store.put("answers", key, number, record)', "pass", "answers are not kept"),
        ("run_store", 'if found["base"] == parent.version', "if True", "changes of another memory are applied"),
        ("run_store", "if row.failure is None:", "if True:", "a failed question is not asked again"),
        ("run_store", "scope = self.part + phase", "scope = self.part", "rows of one phase answer another"),
        ("folder", "if before.get(key) != settings.get(key):", "if False:", "a run goes on with other settings"),
    ),
    *of(
        "resume",
        "engines",
        (
            "call",
            'client = ("api_", "base_url", "timeout", "cache")',
            'client = ("-",)',
            "an answer hangs on address and key",
        ),
    ),
    *of(
        "resume",
        "programs",
        ("remember", "if self._store is None or node.failures:", "if self._store is None:", "a failed memory is kept"),
        ("remember", "self.at : self.at + kept]", "self.at : self.at]", "what is stored is prepared again"),
    ),
)
STATISTICS = of(
    "statistics",
    "runs",
    ("statistics", "differences > TIE_TOLERANCE", "differences >= 0", "noise wins"),
    (
        "statistics",
        "units.question_counts[samples].sum(axis=1)",
        "units.question_counts.sum()",
        "a long conversation weighs as a short one",
    ),
    ("statistics", "self.n < self.min_n", "False", "a few questions decide"),
    ("statistics", "self.p_value < SIGNIFICANCE_LEVEL", "True", "chance is a gain"),
    ("statistics", "and self.interval.low >= -TIE_TOLERANCE", "", "a gain that reaches below zero is kept"),
    (
        "statistics",
        'unit = "group"\n        unit_scores = _split_by_group(scores, groups)',
        'unit = "group"\n        unit_scores = [[score] for score in scores]',
        "users are not drawn whole",
    ),
    ("statistics", "MIN_GROUPS = 6", "MIN_GROUPS = 5", "with five users nothing can be told"),
    ("statistics", "if group_count >= MIN_GROUPS:", "if True:", "a few conversations speak of others"),
    ("statistics", "max(0.0, icc)", "0.0", "that questions of a conversation agree is not seen"),
    (
        "destination",
        "folder = self.run.program if self._holds_another(start) else self.folder",
        "folder = self.folder",
        "the original replaces a compiled program",
    ),
    ("promotion", "if compiled.broken:", "if False:", "a broken run is promoted"),
    ("promotion", "if not (_whole(start) and _whole(compiled)):", "if False:", "unanswered questions decide"),
)
SAVED = (
    *of(
        "saved",
        "runs",
        ("manifest", "if manifest.manifest_sha256 != digest:", "if False:", "an altered manifest is loaded"),
        ("manifest", "if sha256_of(text) != manifest.state_sha256:", "if False:", "an altered state is loaded"),
        ("artifact", 'if ":" in manifest.method and not allow_code:', "if False:", "code is imported unasked"),
        ("artifact", "if given is None and named", "if False and named", "a folder chooses where texts go"),
    ),
    *of(
        "saved",
        "programs",
        ("state", "if _refused(key, value) is None}", "}", "keys are saved"),
        ("state", "if reason := _refused(setting, value):", "if reason := None:", "an address is loaded"),
        ("state", "if _marked(dump_values(signature, example)):", "if False:", "a demo names a file"),
    ),
)
QUEUE = of(
    "queue",
    "memory",
    ("store_claims", 'AND version = :old"', '"', "a commit passes over another"),
    ("store_claims", 'free = "worker = :worker OR', 'free = "1 = 1 OR', "a claim is taken from its holder"),
    ("store_claims", "OR claimed_until <= :now ", "", "the claim of the dead never ends"),
    ("store_claims", "schema = :schema))", "schema = :schema) AND 1 = 0)", "a foreign memory is claimed"),
    ("store_claims", "ORDER BY claimed_until LIMIT", "ORDER BY claimed_until DESC LIMIT", "the last is first"),
    ("store_claims", "SET state = 'remembered', error", "SET error", "what is remembered stays queued"),
    ("store_claims", 'AND version = :version)"""', ')"""', "a void claim notes a failure"),
    ("store", "if item.id and there.digest == digest:", "if False:", "a repeated session is refused"),
)
FORGETTING = of(
    "forgetting",
    "memory",
    ("store_claims", "if forgotten:", "if False:", "an earlier write comes back"),
    ("store_claims", "AS INTEGER) + 1 AS", "AS INTEGER) + 0 AS", "who forgets gets no number"),
    (
        "store_claims",
        'if found.state in ("remembered"',
        'if found.state in ("none"',
        "a memory keeps a forgotten session",
    ),
    ("store_claims", 'connection.exec_driver_sql("VACUUM")', "pass", "deleted bytes stay between rows"),
    ("store_claims", "for table in t.OWNED:", "for table in t.OWNED[1:]:", "what was said stays"),
)
DELTAS = of(
    "deltas",
    "memory",
    ("deltas", "in reversed(how):", "in how:", "places shift while they change"),
    ("deltas", "or [*kept, *put] != list(after):", "or False:", "the order of keys is lost"),
    ("deltas", "and type(after) is type(before) and", "and", "True passes for 1"),
    (
        "indexes",
        "if followed.memory() is not memory and",
        "if not len(followed.index) and",
        "another version is searched",
    ),
    ("indexes", "(old.get(id) is not e and old.get(id) != e)", "id not in old", "an entry keeps its old text"),
)
KEYS = of(
    "keys",
    "programs",
    ("identity", "lms, _rollout.get()]", "lms]", "rollouts share a memory"),
    ("identity", "_source_digest(type(writer)), ", "", "a memory outlives its code"),
    ("identity", "if not _UNSEEN.search(name)}", "}", "an API key decides a memory"),
    ("identity", "layout, lms", "lms", "the adapter is not in the key"),
    (
        "identity",
        "predictors = writer.predictors_below()\n    lms",
        "predictors = {}\n    lms",
        "models share a memory",
    ),
    ("remember", "return self._nodes.once(key, make)", "return make()", "each thread writes for itself"),
)
READING = (
    *of(
        "reading",
        "reading",
        ("values", "if not self.repairs.has_unknown_id(element_path):", "if True:", "invented ids are kept"),
        ("answer", "remove_thoughts(shorten_blanks(completion))", "shorten_blanks(completion)", "thinking is answer"),
        ("answer", 'reader.repairs.add("field", name)', "pass", "a default stands in uncounted"),
        ("ids", "return ids[0] if len(ids) == 1 else None", "return ids[0]", "an id is guessed"),
        ("json_text", "if ending.is_open and not ends_with_bracket:", "if False:", "a cut answer passes for whole"),
        ("markers", 'return _MARKER_START.sub(r"\\g<0>~", text)', "return text", "a value begins a section"),
    ),
    *of(
        "reading",
        "programs",
        ("adapter", 'self._error.lm_response or "(empty)"', '"(empty)"', "a model does not see its own slip"),
        ("adapter", "name: 2 * int(", "name: int(", "a cut answer gets no room"),
        ("adapter", "ends_in_loop(completion):", "False:", "circles get more room"),
    ),
)
ACCESS = of(
    "access",
    "serving",
    (
        "auth",
        "        self._refresh()\n        return self._tenants.get",
        "        return self._tenants.get",
        "a token stays",
    ),
    ("auth", "self._take({})", "pass", "a broken token file opens"),
    ("auth", "if (tenant == OPERATOR) != (path == METRICS):", "if False:", "tenants read metrics"),
    ("auth", "if not _LOOPBACK_HOST.fullmatch(host):", "if False:", "another host is answered"),
    ("auth", 'headers.getlist("origin")', "()", "pages of other origins are served"),
    ("auth", "if len(given) == 1 else (", "if given else (", "two tokens are one"),
    ("service", "Owner(user, self.tenant)", 'Owner(user, "")', "tenants share users"),
    ("routes", "store.users(caller.tenant, after", "store.users(None, after", "a tenant lists all users"),
)
ROOMS = (*BUDGET, *RESUME, *STATISTICS, *SAVED, *QUEUE, *FORGETTING, *DELTAS, *KEYS, *READING, *ACCESS)
