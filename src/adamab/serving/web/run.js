// The run: loss by round, which class was chosen and why, where the samples went, and what was spent.

import { counted, el, empty, figure, get, money, number, percent, replace } from "./parts.js";
import { lineChart, sparkline, strip, table } from "./charts.js";

const PAGE = 20;
const STRIPS = 24;
const at = {};
let rows = [];
let more = false;
let shown = STRIPS;
let opened = new Set();
let overview = null;
let began = null;

export function begin(section, now, { fitButton }) {
  at.again = el("div", { class: "row again" });
  at.fitButton = fitButton;
  at.facts = el("dl", { class: "facts" });
  at.loss = el("div");
  at.where = el("div");
  at.rounds = el("div");
  at.gate = el("div");
  at.spend = el("div");
  section.append(at.facts, at.again, at.loss, at.where, at.rounds, at.gate, at.spend);
}

export async function show(now) {
  overview = now;
  facts();
  await Promise.all([figures(), rounds()]);
}

export async function follow(now) {
  overview = now;
  facts();
  await Promise.all([figures(), rounds()]);
}

function fact(name, value, note) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value, note ? el("span", { class: "note" }, note) : null));
}

function facts() {
  const { estimate, spent, budget } = overview;
  const limits = [budget?.samples ? `${number(budget.samples)} samples` : null, budget?.usd ? `$${budget.usd}` : null, budget?.calls ? `${number(budget.calls)} calls` : null].filter(Boolean);
  replace(at.facts,
    fact("Expected accuracy", estimate ? percent(estimate.accuracy) : "unknown", estimate
      ? `${percent(estimate.low)} to ${percent(estimate.high)}, on ${counted(estimate.n, "held-out sample")}`
      : overview.state === "finished" ? "needs two or more examples per class" : "known when the fit ends"),
    fact("Samples", number(overview.given + overview.synthetic), `${number(overview.given)} given, ${number(overview.synthetic)} synthetic`),
    fact("Rounds", number(overview.rounds), overview.generator === "none" ? "no generator" : overview.policy ? `policy ${overview.policy}` : ""),
    fact("Kept out", number(overview.kept_out + overview.rejected), overview.rejected ? `${number(overview.rejected)} by a person` : "by the quality gate"),
    fact("Spent", money(settled(spent)), spent.calls ? `${counted(spent.calls, "call")}${unsettled(spent)}` : "no paid calls"),
    fact("Budget", limits.length ? limits.join(", ") : "none", overview.ended ?? ""));
  const { state, fit, generator } = overview;
  const possible = state !== "running" && state !== "model only" && fit?.state !== "running";
  const buys = generator !== null && generator !== "none";
  replace(at.again, possible ? [at.fitButton("Fit again"), el("p", { class: "hint" },
    `With the run's own settings${buys ? ` and what is left of its budget (${limits.length ? limits.join(", ") : "it has none"})` : ""}; what was bought is not bought again.`)] : null);
}

// What is on its way is counted at its highest price and gets cheaper: it is shown beside what was spent.
const settled = (spent) => (overview.state === "running" ? spent.usd - spent.held : spent.usd);

function unsettled(spent) {
  if (!spent.unsettled) return "";
  return `, ${number(spent.unsettled)} ${overview.state === "running" ? "on the way" : "cut off and counted in full"}`;
}

async function figures() {
  const data = await get("v1/run/figures", { limit: Math.min(200, shown) });
  loss(data);
  where(data);
  gate(data.gate);
  spend(data.spending);
}

function heading(title, ...content) {
  return [el("h3", {}, title), content.length ? el("p", { class: "hint" }, ...content) : null];
}

function loss(data) {
  if (data.loss.length < 2) {
    replace(at.loss, heading("Loss by round"), empty("There is no curve to draw.", overview.generator === null || overview.generator === "none"
      ? "Without a generator there are no rounds. Name one with --generator." : "It appears with the second round."));
    return;
  }
  const [first, last] = [data.loss[0], data.loss.at(-1)];
  const key = JSON.stringify([data.loss.length, last]);
  if (at.loss.dataset.key === key) return;
  at.loss.dataset.key = key;
  replace(at.loss, heading("Loss by round", "Training loss after each round, on the samples that were there. New samples can raise it."),
    lineChart(data.loss, { label: `Training loss from ${figure(first[1])} after round ${first[0]} to ${figure(last[1])} after round ${last[0]}`, x: "Round", y: "Loss" }));
}

function where(data) {
  if (!data.classes.length) {
    replace(at.where, heading("Where the samples went"), overview.state === "running" ? empty("No class was chosen yet.", "The first round is under way.") : empty("No class was chosen.", "No generator was used."));
    return;
  }
  const most = Math.max(1, ...data.classes.flatMap((one) => one.counts));
  const wide = data.columns.length > 1 ? `${number(data.columns[0])} to ${number(overview.rounds)}` : "1";
  const lines = data.classes.map((one) => {
    const last = one.samples;  // as Classes has it: people may have rejected some since
    return el("tr", {}, el("th", { scope: "row" }, el("a", { href: `#classes?${new URLSearchParams({ class: one.class })}` }, one.class)),
      el("td", { class: "wide" }, strip(data.columns.length, one.strip, `${one.class} was chosen in ${counted(one.chosen, "round")}`)),
      el("td", { class: "number" }, number(one.chosen)),
      el("td", {}, sparkline(one.counts, most, `${one.class}: ${one.counts[0] ?? 0} samples at first, ${last} now`)),
      el("td", { class: "number" }, number(last)));
  });
  replace(at.where, heading("Where the samples went", `Each mark is a round in which the class was chosen (rounds ${wide}, from left to right); the line is its number of samples, given and synthetic.`),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Choices and samples by class" }, el("table", { class: "strips" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Class"), el("th", { scope: "col", class: "wide" }, "Chosen in"), el("th", { scope: "col", class: "number" }, "Times"),
        el("th", { scope: "col" }, "Samples over time"), el("th", { scope: "col", class: "number" }, "Samples"))),
      el("tbody", {}, lines))),
    data.total > data.classes.length && shown < 200 ? el("button", { type: "button", class: "quiet more", onclick: () => { shown = Math.min(200, shown + 2 * STRIPS); figures(); } },
      `Show more classes (${data.classes.length} of ${number(data.total)})`) : null);
}

async function rounds() {
  if (began !== overview.began) {  // another run in the same directory
    began = overview.began;
    rows = [];
    opened = new Set();
  }
  const newest = rows[0]?.seq ?? 0;
  const data = await get("v1/run/rounds", { after: newest, limit: newest ? 200 : PAGE });
  if (!newest || data.more) {  // at first, or far behind: take the latest
    rows = data.rounds.slice(0, Math.max(PAGE, rows.length));
    more = data.more || data.rounds.length > rows.length;
  } else {
    const known = rows[0]?.seq ?? 0;  // somebody else may have asked meanwhile
    rows = [...data.rounds.filter((one) => one.seq > known), ...rows];
  }
  drawRounds();
}

async function older() {
  const data = await get("v1/run/rounds", { before: rows.at(-1).seq, limit: 2 * PAGE });
  rows = [...rows, ...data.rounds];
  more = data.more;
  drawRounds();
}

function drawRounds() {
  const focused = document.activeElement?.closest("[data-round]")?.dataset.round;
  if (!rows.length) {
    replace(at.rounds);
    return;
  }
  const open = at.rounds.querySelector("details")?.open ?? false;
  replace(at.rounds, el("details", { class: "fold", open }, el("summary", {}, el("h3", {}, "Details: every round, and why its class was chosen")),
  el("p", { class: "hint" }, "The class with the highest score is chosen: score = bonus − δ². ",
    el("strong", {}, "δ²"), " says how far one more batch of the class would leave the training gradient from that of a balanced training set; small is good. ",
    el("strong", {}, "The bonus"), " is large for classes with few samples, and for those that the folds find hard."),
  el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Rounds" }, el("table", { class: "rounds" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "number" }, "Round"), el("th", { scope: "col" }, "Chosen class"), el("th", { scope: "col", class: "number" }, "Score"), el("th", { scope: "col", class: "number" }, "Bonus"),
      el("th", { scope: "col", class: "number" }, "δ²"), el("th", { scope: "col" }, "Came of it"), el("th", { scope: "col", class: "number" }, "Loss"), el("th", { scope: "col" }, el("span", { class: "unseen" }, "Others")))),
    el("tbody", {}, rows.flatMap(roundRow)))),
  more ? el("button", { type: "button", class: "quiet more", onclick: older }, "Show earlier rounds") : null));
  if (focused) at.rounds.querySelector(`[data-round="${focused}"]`)?.focus();
}

function outcome(one) {
  if (one.chosen === null) return "training only";
  const out = Object.entries(one.rejected).map(([reason, count]) => `${count} ${reason}`);
  return [`${one.accepted} of ${one.asked} entered`, ...out, one.refused ? "the generator declined" : null, one.closed ? `closed: ${one.closed}` : null, one.ended ? `ended: ${one.ended}` : null].filter(Boolean).join("; ");
}

function roundRow(one) {
  const id = `round-${one.seq}`;
  const detail = el("tr", { id, class: "detail", hidden: !opened.has(one.seq) }, el("td", { colspan: 8 }, comparison(one)));
  const button = one.runners_up.length ? el("button", { type: "button", class: "quiet small", "data-round": one.seq, "aria-expanded": String(opened.has(one.seq)), "aria-controls": id,
    "aria-label": `Compare round ${one.round} with other classes` }, "Compare") : null;
  button?.addEventListener("click", () => {
    detail.hidden = !detail.hidden;
    if (detail.hidden) opened.delete(one.seq); else opened.add(one.seq);
    button.setAttribute("aria-expanded", String(!detail.hidden));
  });
  const why = one.why;
  return [el("tr", {}, el("td", { class: "number round" }, one.round), el("th", { scope: "row" }, one.chosen ?? "–"),
    why && why.score === null ? el("td", { colspan: 3, class: "note" }, why.count === 0 ? "had no sample yet" : `${overview.policy ?? "this policy"} computes no scores`)
      : [["Score", why?.score], ["Bonus", why?.bonus], ["δ²", why?.shift]].map(([head, value]) => el("td", { class: "number", "data-head": head }, figure(value))),
    el("td", { class: "came" }, outcome(one)), el("td", { class: "number", "data-head": "Loss" }, figure(one.loss)), el("td", { class: "others" }, button)), detail];
}

function comparison(one) {
  const all = [one.why, ...one.runners_up].filter((score) => score?.score !== null && score !== null);
  return el("table", { class: "inner" }, el("caption", {}, `Before round ${one.round}: the chosen class and the next best. ≥ and ≤ mark bounds: the class could not win, so its exact value was not computed.`),
    el("thead", {}, el("tr", {}, ["Class", "Samples", "Score", "Bonus", "δ²"].map((head, i) => el("th", { scope: "col", class: i ? "number" : "" }, head)))),
    el("tbody", {}, all.map((score, i) => el("tr", { class: i ? "" : "best" }, el("th", { scope: "row" }, score.class_name), el("td", { class: "number" }, number(score.count)),
      el("td", { class: "number" }, `${score.exact ? "" : "≤ "}${figure(score.score)}`), el("td", { class: "number" }, figure(score.bonus)),
      el("td", { class: "number" }, `${score.exact ? "" : "≥ "}${figure(score.shift)}`)))));
}

function gate(data) {
  const reasons = Object.entries(data?.reasons ?? {});
  if (!reasons.length) {
    replace(at.gate);
    return;
  }
  replace(at.gate, heading("Kept out by the quality gate"),
    el("p", { class: "tags" }, reasons.map(([reason, count]) => el("a", { class: "tag", href: `#samples?${new URLSearchParams({ reason })}` }, `${reason} ${number(count)}`))),
    table(["Class", "Kept out"], data.classes.map((one) => [one.class, Object.entries(one.reasons).map(([reason, count]) => `${count} ${reason}`).join(", ")]), { title: "By class" }));
}

function spend(data) {
  if (!data.calls) {
    replace(at.spend, heading("Spent"), el("p", {}, overview.state === "running" ? "Nothing was spent so far." : "Nothing was spent: no paid service was used."));
    return;
  }
  const lines = (list) => list.map((one) => [one.name, money(one.usd), number(one.calls), number(one.input_tokens), number(one.output_tokens)]);
  const heads = ["", "Money", "Calls", "Tokens in", "Tokens out"];
  replace(at.spend, heading("Spent", `${money(settled(data))} in ${counted(data.calls, "call")}${unsettled(data)}.`),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Spending by purpose" }, el("table", { class: "money" },
      el("thead", {}, el("tr", {}, heads.map((head, i) => el("th", { scope: "col", class: i ? "number" : "" }, head || "Purpose")))),
      el("tbody", {}, lines(data.by_purpose).map((line) => el("tr", {}, line.map((value, i) => (i ? el("td", { class: "number" }, value) : el("th", { scope: "row" }, value)))))))),
    data.by_class.length ? table(["Class", ...heads.slice(1)], lines(data.by_class), { title: data.classes > data.by_class.length ? `By class: the ${data.by_class.length} dearest of ${number(data.classes)}` : "By class" }) : null);
}
