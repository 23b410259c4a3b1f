"use strict";
// The browser of the questions. Every text becomes an element by textContent: none is read as HTML.
(() => {
  const page = JSON.parse(document.getElementById("data").textContent);
  const AT_ONCE = 100;
  const byId = (id) => document.getElementById(id);
  const FILTERS = ["category", "why", "change", "hit", "words"].map((name) => [name, byId(`f-${name}`)]).filter(([, field]) => field);
  const last = page.phases.length - 1;
  const state = { found: page.questions, from: 0, chosen: -1 };
  const texts = new Map();

  const make = (tag, text, name, ...children) => {
    const made = document.createElement(tag);
    if (name) made.className = name;
    if (text !== null && text !== undefined) made.textContent = text;
    made.append(...children);
    return made;
  };
  const shownLast = (question) => question.shown[last] || question.shown.find(Boolean);
  const score = (value) => value.toFixed(3);
  const contextTitle = (phase) => (page.answers ? `Context and prompts of the answer ${phase}` : `Context and prompts, ${phase}`);
  const verdictOf = (shown) => {
    if (shown.failure) return "failed";
    if (page.answers) return shown.right ? "right" : "wrong";
    return shown.right ? "has support" : "no support";
  };

  const searched = (question) => {
    if (!texts.has(question)) {
      const answers = question.shown.map((each) => (each ? each.answer : ""));
      texts.set(question, [question.id, question.question, question.gold, ...answers].join("\n").toLowerCase());
    }
    return texts.get(question);
  };
  const TESTS = {
    category: (question, value) => question.category === value,
    why: (question, value) => (value === "!right" ? !shownLast(question).right : shownLast(question).why === value),
    change: (question, value) => question.change === value,
    hit: (question, value) => shownLast(question).hit === value,
    words: (question, value) => value.toLowerCase().split(/\s+/).every((word) => searched(question).includes(word)),
  };

  const filter = () => {
    const asked = FILTERS.map(([name, field]) => [name, field.value.trim()]).filter(([, value]) => value);
    state.found = page.questions.filter((question) => asked.every(([name, value]) => TESTS[name](question, value)));
    state.from = 0;
    list();
    choose(state.found.length ? 0 : -1);
  };

  const list = () => {
    const some = state.found.slice(state.from, state.from + AT_ONCE);
    byId("list").replaceChildren(...some.map((question, n) => item(question, state.from + n)));
    const [all, total] = [state.found.length, page.questions.length];
    byId("count").textContent = all === total ? `${total} questions` : `${all} of ${total} questions`;
    byId("place").textContent = all > AT_ONCE ? `${state.from + 1} to ${state.from + some.length} of ${all}` : "";
    byId("back").disabled = state.from === 0;
    byId("on").disabled = state.from + AT_ONCE >= all;
    byId("back").hidden = byId("on").hidden = all <= AT_ONCE;
  };

  const item = (question, n) => {
    const shown = shownLast(question);
    const mark = shown.right ? "✓" : shown.failure ? "failed" : "✗";
    const button = make("button", null, "", make("span", question.question || "(no words)", "asked"));
    const change = question.change === "better" ? " ▲" : question.change === "worse" ? " ▼" : "";
    const got = make("span", `${score(shown.score)} ${mark}${change}`, shown.right ? "got right" : "got wrong");
    got.setAttribute("aria-label", `${verdictOf(shown)}, score ${score(shown.score)}${question.change && question.change !== "same" ? `, ${question.change} than before` : ""}`);
    got.setAttribute("role", "img");
    button.append(make("span", `${page.names[question.category] || question.category} · ${question.id}`, "at"), got);
    button.type = "button";
    button.dataset.n = n;
    button.addEventListener("click", () => choose(n, true));
    return make("li", null, "", button);
  };

  const choose = (n, open = false) => {
    state.chosen = n;
    if (n >= 0 && (n < state.from || n >= state.from + AT_ONCE)) {
      state.from = Math.floor(n / AT_ONCE) * AT_ONCE;
      list();
    }
    for (const button of byId("list").querySelectorAll("button")) {
      const here = Number(button.dataset.n) === n;
      if (here) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
    detail(state.found[n]);
    if (open && window.matchMedia("(max-width: 56rem)").matches) byId("detail").scrollIntoView();
  };

  const move = (by) => {
    const n = state.chosen + by;
    if (n < 0 || n >= state.found.length) return;
    choose(n);
    const button = byId("list").querySelector(`button[data-n="${n}"]`);
    button.focus({ preventScroll: true });
    button.scrollIntoView({ block: "nearest" });
  };

  const said = (text) => make("p", text || "(nothing)", text ? "said" : "said soft");

  const detail = (question) => {
    const place = byId("detail");
    place.replaceChildren();
    if (!question) {
      place.append(make("p", "No question is like that.", "soft"));
      return;
    }
    const tags = make("p", null, "tags");
    tags.append(make("span", page.names[question.category] || question.category, "tag"), make("span", question.id, "tag"));
    if (!question.counts) tags.append(make("span", "not in score", "tag"));
    if (question.change && question.change !== "same") tags.append(make("span", question.change, question.change === "better" ? "tag good" : "tag bad"));
    const pairs = make("dl", null, "pair");
    const pair = (name, ...values) => {
      pairs.append(make("dt", name), make("dd", null, "", ...values));
    };
    pair("Gold answer", said(question.gold));
    question.shown.forEach((shown, n) => {
      if (!shown) return;
      const verdict = make("p", null, "small soft");
      verdict.append(make("span", `${score(shown.score)} ${verdictOf(shown)}`, shown.right ? "tag good" : "tag bad"));
      const parts = Object.entries(shown.parts || {}).map(([name, value]) => `${name} ${score(value)}`).join(", ");
      if (parts) verdict.append(` ${parts}`);
      const words = shown.failure ? `failed, ${shown.failure}` : shown.answer;
      const title = page.answers ? "Answer" : "Support";
      // Without an answer the verdict stands alone.
      const shownWords = page.answers || shown.failure ? [said(words)] : [];
      pair(last ? `${title} ${page.phases[n]}` : title, ...shownWords, verdict);
      if (shown.feedback && n === last) pair("The metric says", said(shown.feedback));
    });
    const heading = make("h3", question.question || "(no words)", "said");
    place.append(heading, tags, pairs);
    const newest = shownLast(question);
    place.append(behind(question, newest, last ? page.phases[question.shown.indexOf(newest)] : ""));
    question.shown.forEach((shown, n) => {
      if (!shown || shown === newest) return;
      const earlier = make("details", null, "phase", make("summary", contextTitle(page.phases[n])));
      earlier.append(behind(question, shown, ""));
      place.append(earlier);
    });
  };

  const behind = (question, shown, phase) => {
    const all = make("div", null, phase ? "phase" : "");
    const level = phase ? "h5" : "h4";
    if (phase) all.append(make("h4", contextTitle(phase)));
    const head = (text) => make(level, text);
    if (shown.kept === false) {
      all.append(make("p", "An older version answered this and kept nothing to look at.", "soft small"));
      return all;
    }
    const evidence = Object.entries(question.evidence);
    // A program that is not ours may not report what it recalled: then only its prompts tell what it saw.
    const isRecallKnown = !shown.in_prompts;
    const found = new Set([...(shown.found || []), ...(shown.in_prompts || [])]);
    const missing = evidence.filter(([id]) => !found.has(id));
    const entries = shown.entries || [];
    if (evidence.length) {
      const share = `${evidence.length - missing.length} of ${evidence.length} pieces of gold evidence`;
      const words = isRecallKnown ? "recalled." : "found in the prompts; the program does not report which it recalled.";
      all.append(make("p", `${share} ${words}`, "small"));
    }
    if (missing.length) {
      all.append(head(isRecallKnown ? "Gold evidence that was not recalled" : "Gold evidence not found in the prompts"));
      all.append(make("ul", null, "entries", ...missing.map(([id, line]) => make("li", page.lines[line] || id, "gold"))));
    }
    const count = `${entries.length} ${entries.length === 1 ? "entry" : "entries"}`;
    all.append(head(isRecallKnown ? `Recalled: ${count}` : `Reported as recalled: ${count}`));
    if (entries.some((entry) => entry.fallback)) {
      all.append(make("p", "Nothing was found. What is marked was shown instead, and counts in no figure of recall.", "soft small"));
    }
    const rows = entries.map((entry) => {
      const row = make("li", page.lines[entry.line], entry.gold ? "gold" : "");
      if (entry.gold) row.append(" ", make("span", "gold evidence", "tag mark"));
      if (entry.fallback) row.append(" ", make("span", "not found", "tag"));
      return row;
    });
    all.append(rows.length ? make("ol", null, "entries", ...rows) : make("p", isRecallKnown ? "Nothing was recalled." : "Nothing was reported.", "soft small"));
    const gold = new Set(entries.filter((entry) => entry.gold).map((entry) => entry.line));
    const calls = shown.calls || [];
    if (calls.length) all.append(head(calls.length === 1 ? "Prompt" : "Prompts"));
    calls.forEach((call) => all.append(prompt(call, gold)));
    if (shown.left_out) all.append(make("p", `${shown.left_out} more entries or calls are left out here.`, "soft small"));
    return all;
  };

  const prompt = (call, gold) => {
    const opened = make("details");
    const summary = make("summary", null, "", make("code", call.predictor || "call"), " ");
    summary.append(make("span", call.outcome, call.outcome === "lost" ? "tag bad" : "tag"));
    opened.append(summary);
    // Made when it is opened: a prompt may have thousands of lines.
    opened.addEventListener("toggle", () => {
      if (!opened.open || opened.dataset.made) return;
      opened.dataset.made = "yes";
      const shown = make("div", null, "prompt");
      const message = ({ role, content }) => [
        make("p", role, "role"),
        ...content.map((n) => make("code", page.lines[n], gold.has(n) ? "gold" : "")),
      ];
      shown.tabIndex = 0;
      shown.setAttribute("role", "region");
      shown.setAttribute("aria-label", `Prompt of ${call.predictor || "the call"}`);
      const [earlier, own] = [call.messages.slice(0, -1), call.messages.slice(-1)];
      const demos = earlier.filter(({ role }) => role === "user").length;
      const before = `before it: instructions${demos ? ` and ${demos} ${demos === 1 ? "demo" : "demos"}` : ""}`;
      if (earlier.length) shown.append(make("details", null, "", make("summary", before, "role"), ...earlier.flatMap(message)));
      shown.append(...own.flatMap(message));
      shown.append(make("p", "answer", "role"), ...call.answer.map((n) => make("code", page.lines[n])));
      if (call.error) shown.append(make("p", call.error, "tag bad"));
      opened.append(shown);
    });
    return opened;
  };

  FILTERS.forEach(([, field]) => field.addEventListener("input", filter));
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", () => setTimeout(filter));
  byId("back").addEventListener("click", () => choose(Math.max(0, state.from - AT_ONCE)));
  byId("on").addEventListener("click", () => choose(state.from + AT_ONCE));
  for (const link of document.querySelectorAll("[data-why]")) {
    link.addEventListener("click", () => {
      byId("filters").reset();
      byId("f-why").value = link.dataset.why;
      setTimeout(filter);
    });
  }
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const inList = event.target.closest("#list");
    if (event.key === "j" || (inList && event.key === "ArrowDown")) move(1);
    else if (event.key === "k" || (inList && event.key === "ArrowUp")) move(-1);
    else if (event.key === "/") byId("f-words").focus();
    else return;
    event.preventDefault();
  });
  filter();
})();
