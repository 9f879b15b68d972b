// Samples: browse what was written, and accept or reject it with one key.

import { announce, classNames, counted, debounced, el, empty, enlarge, failure, get, number, post, replace, thumbnail } from "./parts.js";

const PAGE = 50;
const at = {};
const done = [];  // verdicts of this visit, for undoing
let rows = [];
let total = 0;
let current = 0;
let overview = null;
let known = "";
let asked = 0;
let look = () => {};
const chosen = new Set();  // ids of the samples that are selected

export function begin(section, now, frame) {
  look = frame.look;
  const choice = (id, label, options) => {
    const select = el("select", { id }, options.map(([value, text]) => el("option", { value }, text)));
    select.addEventListener("change", () => load(0));
    return [select, el("div", {}, el("label", { for: id }, label), select)];
  };
  const parts = {};
  [at.class, parts.class] = choice("sample-class", "Class", [["", "All classes"]]);
  [at.source, parts.source] = choice("sample-source", "Source", [["synthetic", "Synthetic"], ["given", "Given"], ["", "All"]]);
  [at.reason, parts.reason] = choice("sample-reason", "Quality gate", [["", "All"]]);
  [at.verdict, parts.verdict] = choice("sample-verdict", "Verdict", [["", "All"], ["none", "Not reviewed"], ["accept", "Accepted"], ["reject", "Rejected"]]);
  at.words = el("input", { id: "sample-words", type: "search", autocomplete: "off" });
  at.words.addEventListener("input", debounced(() => load(0)));
  at.trouble = el("div");
  at.summary = el("p", { class: "hint", "aria-live": "polite" });
  at.list = el("ol", { class: "samples", "aria-label": "Samples" });
  at.bulk = el("div", { class: "bulk", role: "toolbar", "aria-label": "Selected samples", hidden: true });
  at.target = el("select", { "aria-label": "Move the selected samples to" });
  at.target.addEventListener("change", () => { if (at.target.value) move(at.target.value); });
  at.more = el("div");
  section.append(
    el("form", { class: "filters", role: "search", "aria-label": "Samples", onsubmit: (event) => event.preventDefault() },
      parts.class, parts.source, parts.reason, parts.verdict, now.modality === "image" ? null : el("div", {}, el("label", { for: "sample-words" }, "Find"), at.words)),
    el("div", { class: "row spread" }, at.summary, el("button", { type: "button", class: "quiet small", onclick: selectAll }, "Select all that are shown"), el("button", { type: "button", class: "quiet small", onclick: () => document.getElementById("keys").showModal() }, "Keys: j k x a r u")),
    at.trouble, at.list, at.more, at.bulk);
}

export async function show(now, query) {
  overview = now;
  if ([...query.keys()].length) {
    at.verdict.value = "";
    at.words.value = "";
    at.source.value = query.get("source") ?? "synthetic";
    await names();
    at.class.value = query.get("class") ?? "";
    const reason = query.get("reason") ?? "";
    option(at.reason, reason, reason || "All");
    at.reason.value = reason;
  } else {
    await names();
  }
  await load(0);
}

export async function follow(now) {
  const before = overview;
  overview = now;
  if (!before || before.state !== now.state || !rows.length) await load(0);
  else await count();
}

async function names() {
  const kept = at.class.value;
  const all = await classNames(overview.classes);
  if (all.join("\n") === known) return;
  known = all.join("\n");
  replace(at.class, el("option", { value: "" }, "All classes"), all.map((name) => el("option", { value: name }, name)));
  replace(at.target, el("option", { value: "" }, "Move to…"), all.map((name) => el("option", { value: name }, name)));
  at.class.value = kept;
}

function option(select, value, text) {
  const there = [...select.options].find((one) => one.value === value);
  if (there) there.textContent = text;
  else select.append(el("option", { value }, text));
}

function filters() {
  return { class: at.class.value, source: at.source.value, reason: at.reason.value, verdict: at.verdict.value, q: at.words.value };
}

async function load(offset) {
  const turn = ++asked;
  try {
    const data = await get("v1/run/samples", { ...filters(), offset, limit: PAGE });
    if (turn !== asked) return;  // the filters have changed meanwhile
    if (offset === 0) {
      current = 0;
      chosen.clear();
    }
    rows = offset === 0 ? data.samples : [...rows, ...data.samples];
    showCounts(data);
    if (offset === 0) replace(at.list);
    at.list.append(...rows.slice(at.list.childElementCount).map((row, i) => item(row, at.list.childElementCount + i)));
    if (offset === 0) mark(0);
    nothing();
    bulk();
  } catch (error) {
    replace(at.list, el("li", {}, failure(error)));
  }
}

async function count() {
  showCounts(await get("v1/run/samples", { ...filters(), offset: 0, limit: 1 }));
}

function showCounts(data) {
  total = data.total;
  at.summary.textContent = counted(total, "sample");
  const { reasons, verdicts } = data.counts;
  const kept = at.reason.value;
  const wanted = new Set([...Object.keys(reasons), kept].filter((reason) => !["", "used", "any"].includes(reason)));
  replace(at.reason, el("option", { value: "" }, "All"), el("option", { value: "used" }, `In training (${number(reasons.used ?? 0)})`),
    el("option", { value: "any" }, `Kept out (${number(reasons.any ?? 0)})`),
    [...wanted].map((reason) => el("option", { value: reason }, `Kept out: ${reason} (${number(reasons[reason] ?? 0)})`)));
  at.reason.value = kept;
  option(at.verdict, "none", `Not reviewed (${number(verdicts.none ?? 0)})`);
  option(at.verdict, "accept", `Accepted (${number(verdicts.accept ?? 0)})`);
  option(at.verdict, "reject", `Rejected (${number(verdicts.reject ?? 0)})`);
  replace(at.more, rows.length < total ? el("button", { type: "button", class: "quiet more", onclick: () => load(rows.length) }, `Show more (${number(rows.length)} of ${number(total)})`) : null);
}

function nothing() {
  if (rows.length) return;
  const filtered = at.class.value || at.reason.value || at.verdict.value || at.words.value;
  const none = overview.generator === null || overview.generator === "none";
  replace(at.list, el("li", { class: "none" }, filtered ? empty("No sample matches these filters.", at.reason.value ? "What was dropped as soon as it arrived is counted in The run, but its text was not kept." : "Choose All in one of them.")
    : none ? empty("This run has no synthetic samples.", "No generator was used. Fit with --generator to have some written.")
      : empty("There is no sample yet.", overview.state === "running" ? "They appear as the rounds end." : "None was written.")));
}

const WHY = {
  repeat: "repeats another sample", "near duplicate": "nearly the same as another sample", refusal: "reads like a refusal", "held out": "is in the held-out data",
  inconsistent: "looks like another class", empty: "is empty", unreadable: "cannot be read", "rejected before": "was rejected before",
};

function status(row) {
  if (row.source === "given") return ["given", row.used ? "given" : "given: counts so from the next fit on"];
  if (row.verdict === "reject") return ["rejected", row.used ? "rejected: leaves with the next fit" : "rejected"];
  if (row.reason !== null && !row.used) {
    const entering = row.verdict === "accept";
    return [entering ? "accepted" : "out", entering ? `accepted: enters with the next fit (${row.reason})` : `kept out: ${WHY[row.reason] ?? row.reason}`];
  }
  if (!row.used) return ["out", "not in training: comes back with the next fit"];
  return row.verdict === "accept" ? ["accepted", "accepted"] : ["used", "in training"];
}

function item(row, place) {
  const [kind, words] = status(row);
  const synthetic = row.source === "synthetic";
  const verdictButton = (verdict, letter, text, allowed) => el("button", { type: "button", class: `verdict ${verdict}`, "aria-pressed": String(row.verdict === verdict), "aria-keyshortcuts": letter,
    disabled: !allowed, onclick: (event) => { event.stopPropagation(); mark(place); decide(place, row.verdict === verdict ? "none" : verdict); } }, text);
  const select = el("input", { type: "checkbox", class: "select", "aria-label": `Select: ${row.image ? `a ${row.source} sample of ${row.class}` : row.text.slice(0, 60)}`,
    onclick: (event) => { event.stopPropagation(); select.checked ? chosen.add(row.id) : chosen.delete(row.id); bulk(); } });
  select.checked = chosen.has(row.id);
  return el("li", { class: `sample ${kind}`, tabindex: -1, "data-id": row.id, onclick: () => mark(place) }, select,
    row.image ? el("button", { type: "button", class: "enlarge", "aria-label": `Show the ${row.source} sample of ${row.class} larger`, onclick: () => enlarge(row.id, `A ${row.source} sample of ${row.class}`) },
      thumbnail(row.id, `A ${row.source} sample of ${row.class}`)) : el("p", { class: "quote" }, row.cut ? `${row.text}…` : row.text),
    el("div", { class: "under" }, el("span", { class: "tag" }, row.class), el("span", { class: "note" }, `${words}${row.round === null ? "" : ` · round ${row.round}`}`),
      synthetic ? el("span", { class: "verdicts" }, verdictButton("accept", "a", "Accept", row.can_enter), verdictButton("reject", "r", "Reject", true)) : null));
}

function mark(place, { focus = false } = {}) {
  const items = [...at.list.querySelectorAll(".sample")];
  if (!items.length) return;
  current = Math.max(0, Math.min(items.length - 1, place));
  items.forEach((node, i) => {
    node.classList.toggle("current", i === current);
    node.tabIndex = i === current ? 0 : -1;
  });
  if (focus) {
    items[current].focus({ preventScroll: true });
    items[current].scrollIntoView({ block: "nearest" });
  }
}

// What can be done with all samples that are selected.

function bulk() {
  const selected = rows.filter((row) => chosen.has(row.id));
  at.bulk.hidden = !selected.length;
  if (!selected.length) return;
  const given = selected.every((row) => row.source === "given"), synthetic = selected.every((row) => row.source === "synthetic");
  const entering = selected.filter((row) => row.can_enter);
  const button = (words, onclick, extra = {}) => el("button", { type: "button", class: "quiet small", onclick, ...extra }, words);
  at.target.value = "";
  replace(at.bulk, el("span", { class: "strong", role: "status" }, `${number(selected.length)} selected`),
    synthetic ? [button("Accept", () => review(entering, "accept"), { disabled: !entering.length }), button("Reject", () => review(selected, "reject"))] : null,
    given ? button("Take out", () => move(null)) : null, at.target, button("Clear", () => select([])));
}

function select(these) {
  chosen.clear();
  for (const row of these) chosen.add(row.id);
  for (const node of at.list.querySelectorAll(".sample")) node.querySelector(".select").checked = chosen.has(node.dataset.id);
  bulk();
}

const selectAll = () => select(rows);

async function inBulk(words, changing) {
  try {
    await changing;
    replace(at.trouble);
    announce(words);
    await load(0);
    await look();
  } catch (error) {
    announce(error.message);
    replace(at.trouble, failure(error));
    at.trouble.scrollIntoView({ block: "center" });
  }
}

const BLOCK = 200;  // samples that one request may change

async function changed(path, these, change) {
  for (let i = 0; i < these.length; i += BLOCK) await post(path, { ids: these.slice(i, i + BLOCK).map((row) => row.id), ...change });
}

function review(these, verdict) {
  return inBulk(`${counted(these.length, "sample")} ${verdict}ed`, changed("v1/run/reviews", these, { verdict }));
}

function move(name) {
  const these = rows.filter((row) => chosen.has(row.id));
  return inBulk(`${counted(these.length, "sample")} ${name === null ? "taken out" : `moved to ${name}`}`, changed("v1/run/moves", these, { class: name }));
}

async function decide(place, verdict, { undoing = false } = {}) {
  const row = rows[place];
  if (!row || row.source !== "synthetic") return;
  if (verdict === "accept" && !row.can_enter) {
    announce(`This sample ${WHY[row.reason] ?? row.reason}; that stands.`);
    return;
  }
  const before = row.verdict ?? "none";
  try {
    const data = await post("v1/run/reviews", { ids: [row.id], verdict });
    replace(at.trouble);
    if (!undoing) done.push({ id: row.id, verdict: before });
    rows.forEach((other, i) => {
      if (other.id !== row.id) return;
      rows[i] = { ...other, verdict: data.samples[0].verdict };
      const fresh = item(rows[i], i);
      const old = at.list.children[i];
      const had = old.contains(document.activeElement);
      old.replaceWith(fresh);
      if (i === current) mark(i, { focus: had });
    });
    look();  // how many changes wait is said above all parts
    count().catch(() => {});  // the filters tell how many there are of each; the next look tells it, too
    announce(`${{ accept: "Accepted", reject: "Rejected", none: "Verdict taken back" }[verdict]}.`);
  } catch (error) {
    announce(error.message);
    replace(at.trouble, failure(error));
  }
}

async function undo() {
  const last = done.pop();
  if (!last) {
    announce("There is nothing to undo.");
    return;
  }
  const place = rows.findIndex((row) => row.id === last.id);
  if (place < 0) {
    await post("v1/run/reviews", { ids: [last.id], verdict: last.verdict });
    await load(0);
    return;
  }
  mark(place, { focus: true });
  await decide(place, last.verdict, { undoing: true });
}

async function step(by) {
  if (by > 0 && current === rows.length - 1 && rows.length < total) await load(rows.length);
  const started = at.list.contains(document.activeElement);
  mark(started ? current + by : current, { focus: true });
}

export async function key(event) {
  const actions = {
    j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
    x: () => at.list.querySelectorAll(".sample .select")[current]?.click(), a: () => verdict("accept"), r: () => verdict("reject"), u: undo, Enter: () => enlarge(rows[current].id, `A ${rows[current].source} sample of ${rows[current].class}`),
  };
  const action = actions[event.key];
  if (!action || event.repeat && "aru".includes(event.key)) return;
  if (event.key === "Enter" && !(rows[current]?.image && document.activeElement?.classList.contains("sample"))) return;
  if (event.key.startsWith("Arrow") && !at.list.contains(document.activeElement)) return;
  event.preventDefault();
  await action();
}

// With the key, the eye goes on to the next sample.
async function verdict(which) {
  const place = current;
  mark(place, { focus: true });
  await decide(place, which);
  if (place < rows.length - 1 || rows.length < total) await step(1);
}
