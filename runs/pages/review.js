"use strict";
// The review of questions. Every text becomes an element by textContent: none is read as HTML.
(() => {
  const page = JSON.parse(document.getElementById("data").textContent);
  const LAST_TURNS = 20;
  const byId = (id) => document.getElementById(id);
  const reviews = page.questions.map((question) => ({ ...question, answer: question.row.answer, decision: "open" }));

  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  const button = (text, onClick) => {
    const made = element("button", text);
    made.type = "button";
    made.addEventListener("click", onClick);
    return made;
  };

  const turnsOf = (row) => row.history.items.flatMap((item) => item.turns);

  const turnLine = (turn, evidence) => {
    const mark = evidence.has(turn.id) ? "★ " : "";
    return element("p", `${mark}[${turn.id}] ${turn.speaker}: ${turn.text || turn.caption || ""}`);
  };

  // The turns before the question: the evidence, and the last ones that were said.
  const past = (row) => {
    const turns = turnsOf(row);
    const evidence = new Set(row.evidence);
    const shown = turns.filter((turn, number) => evidence.has(turn.id) || number >= turns.length - LAST_TURNS);
    const details = element("details");
    details.append(element("summary", `What was said before: ${shown.length} of ${turns.length} turns`));
    details.append(...shown.map((turn) => turnLine(turn, evidence)));
    return details;
  };

  const facts = (review) => {
    const list = element("dl");
    const add = (name, value) => list.append(element("dt", name), element("dd", value));
    add("user", review.row.user);
    if (review.given) add("was answered", review.given);
    add("feedback", review.row.category === "right" ? "the answer was right" : "the answer was corrected");
    return list;
  };

  const show = (review) => {
    const item = element("li", null, "question");
    const label = element("label", "right answer", "answer");
    const answer = element("textarea");
    answer.value = review.answer;
    answer.addEventListener("input", () => {
      review.answer = answer.value;
      update();
    });
    label.append(answer);

    const choices = element("div", null, "choices");
    const decide = (decision) => () => {
      review.decision = decision;
      update();
    };
    review.acceptButton = button("Accept", decide("accepted"));
    review.status = element("span", null, "soft");
    choices.append(review.acceptButton, button("Drop", decide("dropped")), button("Undo", decide("open")), review.status);

    item.append(element("h2", review.row.question), facts(review), label, choices, past(review.row));
    review.item = item;
    return item;
  };

  const STATUS = { open: "no decision", accepted: "accepted", dropped: "dropped" };
  const hasAnswer = (review) => review.answer.trim() !== "";
  const accepted = () => reviews.filter((review) => review.decision === "accepted" && hasAnswer(review));

  const update = () => {
    const openOnly = byId("open-only").checked;
    for (const review of reviews) {
      review.item.className = `question is-${review.decision}`;
      review.item.hidden = openOnly && review.decision !== "open";
      review.acceptButton.disabled = !hasAnswer(review);
      review.status.textContent = hasAnswer(review) ? STATUS[review.decision] : "an answer is needed";
    }
    const open = reviews.filter((review) => review.decision === "open").length;
    byId("count").textContent = `${accepted().length} of ${reviews.length} accepted, ${open} without a decision`;
    byId("download").disabled = accepted().length === 0;
  };

  // The id comes last: files that begin with an id are those of the export, which may be overwritten.
  const reviewedRow = (review) => {
    const { id, ...row } = review.row;
    const answer = review.answer.trim();
    const category = answer === row.answer ? row.category : "corrected";
    return { ...row, answer, category, id };
  };

  const reviewedLines = () => accepted().map((review) => `${JSON.stringify(reviewedRow(review))}\n`).join("");

  const download = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([reviewedLines()], { type: "application/jsonl" }));
    link.download = page.file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  };

  byId("questions").append(...reviews.map(show));
  byId("open-only").addEventListener("change", update);
  byId("download").addEventListener("click", download);
  byId("accept-all").addEventListener("click", () => {
    for (const review of reviews) if (review.decision === "open") review.decision = "accepted";
    update();
  });
  // For tests: what a download holds.
  document.body.reviewedLines = reviewedLines;
  update();
})();
