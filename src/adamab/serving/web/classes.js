// Classes: description, samples by source, and what they are confused with.

import { announce, classNames, counted, debounced, el, empty, failure, forgetNames, get, number, percent, post, replace, thumbnail } from "./parts.js";

const PAGE = 50;
const at = {};
let rows = [];
let total = 0;
let open = null;
let asked = 0;
let overview = null;
let look = () => {};

export function begin(section, now, frame) {
  look = frame.look;
  at.words = el("input", { id: "class-words", type: "search", autocomplete: "off" });
  at.order = el("select", { id: "class-order" }, el("option", { value: "task" }, "As in the task"),
    el("option", { value: "hardest" }, "Hardest first"), el("option", { value: "fewest" }, "Fewest samples first"));
  at.list = el("div", { class: "class-list" });
  at.confusion = el("div", { class: "confusion" });
  section.append(
    el("form", { class: "filters", role: "search", "aria-label": "Classes", onsubmit: (event) => event.preventDefault() },
      el("div", {}, el("label", { for: "class-words" }, "Find"), at.words),
      el("div", {}, el("label", { for: "class-order" }, "Order"), at.order)),
    at.list, now.state === "model only" ? null : addition(now), at.confusion);
  at.words.addEventListener("input", debounced(() => load(0)));
  at.order.addEventListener("change", () => load(0));
}

export async function show(now, query) {
  overview = now;
  const name = query.get("class");
  if (name) {
    at.words.value = name;
    open = name;
  }
  await Promise.all([load(0), confusion()]);
}

export async function follow(now) {
  overview = now;
  if (at.list.querySelector(".change:focus-within")) return;  // somebody is writing there
  await load(0, Math.max(PAGE, rows.length));
  if (now.state !== "running") await confusion();
}

async function load(offset, limit = PAGE) {
  const turn = ++asked;
  try {
    const data = await get("v1/run/classes", { q: at.words.value, order: at.order.value, offset, limit: Math.min(200, limit) });
    if (turn !== asked) return;  // something else is wanted meanwhile
    rows = offset === 0 ? data.classes : [...rows, ...data.classes];
    total = data.total;
    draw(data.held_out);
  } catch (error) {
    replace(at.list, failure(error));
  }
}

function draw(heldOut) {
  if (!rows.length) {
    replace(at.list, at.words.value ? empty("No class matches.", "Search for a part of a name or of a description.")
      : empty("This run keeps no task.", "It was fitted by an earlier version, or only a model was saved. Fit again to see its classes here."));
    return;
  }
  const most = Math.max(1, ...rows.map((row) => row.given + row.synthetic));
  replace(at.list,
    el("p", { class: "legend", "aria-hidden": "true" }, el("span", { class: "key given" }), "given", el("span", { class: "key" }), "synthetic"),
    el("table", { class: "classes" },
      el("caption", { class: "unseen" }, "Classes with their samples and held-out answers"),
      el("thead", {}, el("tr", {}, ["Class", "Samples", "Right when held out", "Most often taken for"].map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, rows.flatMap((row) => classRow(row, most)))),
    rows.length < total ? el("button", { type: "button", class: "quiet more", onclick: () => load(rows.length) }, `Show more (${number(rows.length)} of ${number(total)})`) : null,
    heldOut ? null : el("p", { class: "hint" }, noHeldOut()));
}

function noHeldOut() {
  if (overview.state === "running") return "What held-out samples say is written when the fit ends.";
  return "There is no held-out estimate: with one example per class, or a recipe without refit, nothing can be held out. Give two or more examples per class.";
}

function classRow(row, most) {
  const id = `class-${rows.indexOf(row)}`;
  const shown = open === row.class;
  const button = el("button", { type: "button", class: "opener", "aria-expanded": String(shown), "aria-controls": id }, row.class);
  const detail = el("tr", { id, class: "detail", hidden: !shown }, el("td", { colspan: 4 }));
  const toggle = async () => {
    const opening = detail.hidden;
    detail.hidden = !opening;
    button.setAttribute("aria-expanded", String(opening));
    open = opening ? row.class : null;
    if (opening) await fill(detail.firstChild, row.class);
  };
  button.addEventListener("click", toggle);
  if (shown) fill(detail.firstChild, row.class);
  return [el("tr", {},
    el("th", { scope: "row", "data-head": "Class" }, button, row.description ? el("p", { class: "hint" }, row.description) : null,
      row.added ? el("p", { class: "hint" }, "Added after the fit; nothing was trained for it yet.") : null),
    el("td", { "data-head": "Samples" }, stack(row, most)),
    el("td", { "data-head": "Right when held out" }, row.held_out ? el("div", { class: "held" },
      el("span", { class: "strong" }, percent(row.held_out.right / row.held_out.n)), el("span", { class: "note" }, `${row.held_out.right} of ${row.held_out.n}`)) : "–"),
    el("td", { "data-head": "Most often taken for" }, row.confused_with.length
      ? row.confused_with.map(([name, count]) => el("span", { class: "tag" }, `${name} ${count}`)) : "–"),
  ), detail];
}

function stack(row, most) {
  const given = el("span", { class: "fill given" }), synthetic = el("span", { class: "fill" });
  given.style.width = `${(row.given / most) * 100}%`;
  synthetic.style.width = `${(row.synthetic / most) * 100}%`;
  const out = row.kept_out + row.rejected;
  return el("div", { class: "stack" }, el("span", { class: "track", "aria-hidden": "true" }, given, synthetic),
    el("span", { class: "note" }, `${row.given} given, ${row.synthetic} synthetic${out ? `, ${out} kept out` : ""}`));
}

async function fill(cell, name) {
  try {
    const data = await get("v1/run/class", { name });
    replace(cell, detailOf(data));
  } catch (error) {
    replace(cell, failure(error));
  }
}

function detailOf(data) {
  const pairs = (list) => list.map(([name, count]) => el("span", { class: "tag" }, `${name} ${count}`));
  const gate = Object.entries(data.gate);
  const link = (source) => `#samples?${new URLSearchParams({ class: data.class, source })}`;
  return el("div", { class: "details" },
    el("section", {}, el("h3", {}, "Confusion"),
      el("dl", {}, el("dt", {}, "Taken for"), el("dd", {}, data.confused_with.length ? pairs(data.confused_with) : "no other class"),
        el("dt", {}, "Others taken for it"), el("dd", {}, data.taken_for_it.length ? pairs(data.taken_for_it) : "none"),
        gate.length ? [el("dt", {}, "Kept out by the gate"), el("dd", {}, pairs(gate))] : null),
      data.examples.length ? [el("h4", {}, "Wrong when held out"), el("ul", { class: "plain" }, data.examples.map((one) => el("li", {},
        el("p", { class: "quote" }, one.text), el("p", { class: "under" }, el("span", { class: "tag" }, one.predicted), el("span", { class: "note" }, percent(one.probability))))))] : null),
    examples("Given samples", data.given_samples, link("given")),
    examples("Latest synthetic samples", data.synthetic_samples, link("synthetic")),
    changing(data));
}

// Changes of the classes: they are written into the run's task, and the next fit follows them.

async function change(form, content, words) {
  form.querySelector(".bad")?.remove();
  try {
    await post("v1/run/classes", content);
    if (content.to) open = content.to;
    forgetNames();
    announce(words);
    await Promise.all([load(0, Math.max(PAGE, rows.length)), look()]);
    return true;
  } catch (error) {
    form.append(failure(error));
    return false;
  }
}

let fields = 0;

function field(label, control) {
  control.id = `class-field-${++fields}`;
  return el("div", {}, el("label", { for: control.id }, label), control);
}

function changing(data) {
  const name = el("input", { value: data.class, required: true, maxlength: 1000 });
  const description = el("textarea", { rows: 2, value: data.description ?? "" });
  const edit = el("form", {}, field("Name", name), field("Description", description), el("button", { class: "quiet small" }, "Save"));
  edit.addEventListener("submit", (event) => {
    event.preventDefault();
    const to = name.value.trim();
    change(edit, { action: "edit", name: data.class, to, description: description.value.trim() || null }, `${to} is saved`);
  });
  const target = el("select", { required: true }, el("option", { value: "" }, "choose a class"));
  classNames(overview.classes).then((all) => target.append(...all.filter((one) => one !== data.class).map((one) => el("option", { value: one }, one)))).catch(() => {});
  const merge = el("form", {}, field("Merge into", target), el("button", { class: "quiet small" }, "Merge"));
  merge.addEventListener("submit", (event) => {
    event.preventDefault();
    change(merge, { action: "merge", name: data.class, to: target.value }, `${data.class} is merged into ${target.value}`);
  });
  const remove = el("form", {}, el("button", { class: "quiet small" }, "Remove this class"));
  remove.addEventListener("submit", (event) => {
    event.preventDefault();
    const what = `Remove the class ${data.class} and its ${counted(data.given, "example")}? Samples that were generated for it stay in the run, out of training.`;
    if (confirm(what)) change(remove, { action: "remove", name: data.class }, `${data.class} is removed`);
  });
  return el("details", { class: "fold change" }, el("summary", {}, el("h3", {}, "Change this class")), edit, merge, remove);
}

function addition(now) {
  const name = el("input", { required: true, maxlength: 1000 });
  const description = el("textarea", { rows: 2 });
  const texts = el("textarea", { rows: 3, spellcheck: "false" });
  const form = el("form", {}, field("Name", name), field("Description: what belongs to it, in a sentence", description),
    now.modality === "text" ? field("Examples, one a line", texts) : null, el("button", { class: "quiet small" }, "Add the class"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const examples = texts.value.split("\n").map((line) => line.trim()).filter(Boolean);
    const to = name.value.trim();
    if (await change(form, { action: "add", name: to, description: description.value.trim() || null, examples }, `${to} is added`)) form.reset();
  });
  return el("details", { class: "fold change panel" }, el("summary", {}, el("h3", {}, "Add a class")), form);
}

function examples(title, list, link) {
  return el("section", {}, el("h3", {}, title), list.length
    ? el("ul", { class: list[0].image ? "plain gallery" : "plain" }, list.map((one) => el("li", {}, one.image ? thumbnail(one.id, `A sample of ${one.class}`) : el("p", { class: "quote" }, one.text))))
    : el("p", { class: "hint" }, "None."),
  list.length ? el("a", { href: link }, "See all") : null);
}

async function confusion() {
  const data = await get("v1/run/confusion");
  if (!data.held_out) {
    replace(at.confusion);
    return;
  }
  const few = data.classes.length < data.all;
  replace(at.confusion, el("h3", {}, "Confusion"),
    el("p", { class: "hint" }, `${counted(data.held_out, "given sample")}, each answered by folds that did not see it. `
      + `Rows are the true classes, columns the answers${few ? `; the ${data.classes.length} hardest of ${number(data.all)} classes` : ""}.`),
    el("div", { class: "confusions" }, matrix(data), pairList(data.pairs)));
}

function matrix(data) {
  const short = (name) => (name.length > 22 ? `${name.slice(0, 21)}…` : name);
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Confusion matrix" },
    el("table", { class: "matrix" }, el("caption", { class: "unseen" }, "Confusion matrix: rows are true classes, columns are answers"),
      el("thead", {}, el("tr", {}, el("td"), data.classes.map((name) => el("th", { scope: "col", title: name }, el("span", {}, short(name)))))),
      el("tbody", {}, data.matrix.map((line, i) => {
        const sum = line.reduce((a, b) => a + b, 0) || 1;
        return el("tr", {}, el("th", { scope: "row", title: data.classes[i] }, short(data.classes[i])), line.map((count, j) => cell(count, count / sum, i === j)));
      }))));
}

function cell(count, share, right) {
  const box = el("td", { class: count ? (right ? "right" : "wrong") : "none" }, count || "·");
  if (count) box.style.setProperty("--share", String(0.15 + 0.85 * share));
  return box;
}

function pairList(pairs) {
  if (!pairs.length) return null;
  return el("div", { class: "pairs" }, el("h4", {}, "Most frequent confusions"), el("ul", {}, pairs.slice(0, 12).map((pair) => el("li", {},
    el("span", { class: "number" }, `${number(pair.count)} ×`), el("span", {}, `${pair.class} taken for ${pair.predicted}`)))));
}
