// Try it: one text or image, its answer, and the samples that explain it.

import { announce, bar, classNames, el, empty, failure, ordinal, percent, post, replace, thumbnail } from "./parts.js";

const SHOWN = 6;
const at = {};
const LONGEST = 100000;  // characters of a text
let kind = null;
let asked = 0;
let described = false;
let classes = 0;
let look = () => {};

export function begin(section, overview, frame) {
  look = frame.look;
  at.form = el("div", { class: "try-form" });
  at.result = el("div", { class: "result" });
  at.examples = el("div", { class: "examples" });
  section.append(el("div", { class: "try" }, at.form, at.result, at.examples));  // on a phone in this order
}

export function show(overview) {
  follow(overview);
}

export function follow(overview) {
  described = overview.described;
  classes = overview.state === "model only" ? 0 : overview.classes;
  const now = overview.model?.modality ?? "none";
  if (now === kind) return;
  kind = now;
  if (now === "none") {
    replace(at.form);
    replace(at.examples);
    replace(at.result, empty("There is nothing to try yet.", "Come back when the first fit has ended; The run shows how far it is."));
    return;
  }
  replace(at.examples);
  replace(at.form, now === "image" ? imageForm() : textForm(overview));
  clear();
}

function clear() {
  asked += 1;  // an answer that is on its way is not wanted any more
  at.result.removeAttribute("aria-busy");
  replace(at.result, empty("The answer appears here.", "You see how probable each class is, "
    + "and which samples of the run are nearest."));
}

function textForm(overview) {
  const field = el("textarea", { id: "text", rows: 5, maxlength: LONGEST, spellcheck: "false", "aria-describedby": "text-hint" });
  const button = el("button", { class: "main" }, "Classify");
  const full = el("p", { class: "bad", role: "status" });
  field.addEventListener("input", () => {
    full.textContent = field.value.length >= LONGEST ? `A text has ${LONGEST.toLocaleString("en")} characters at most; the rest is cut off.` : "";
  });
  const form = el("form", {}, el("label", { for: "text" }, "A text to classify"), field, full,
    el("div", { class: "row" }, button, el("p", { class: "hint", id: "text-hint" }, "Enter classifies, Shift + Enter begins a new line.",
      overview.model.remote ? " Each question is a call to the embedder's service and may cost money." : "")));
  const ask = () => {
    const text = field.value;
    if (!text.trim()) {
      clear();
      replace(at.result, failure(new Error("there is nothing to classify; type a text first")));
      button.removeAttribute("aria-busy");
      field.focus();
      return;
    }
    question(button, { text });
  };
  form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      ask();
    }
  });
  const examples = overview.examples.map((text) => el("li", {}, el("button", {
    type: "button", class: "example", onclick: () => { field.value = text; ask(); } }, text)));
  if (examples.length) replace(at.examples, el("h3", {}, "Or take a given sample"), el("ul", {}, examples));
  return form;
}

function imageForm() {
  const file = el("input", { id: "image", type: "file", accept: "image/*", class: "unseen" });
  const shown = el("img", { class: "dropped", alt: "The image to classify", hidden: true, onerror: () => { shown.hidden = true; } });
  const label = el("label", { for: "image", class: "drop" }, shown,
    el("span", { class: "strong" }, "Drop an image here"), el("span", { class: "hint" }, "or choose a file, or paste one"));
  const take = (chosen) => {
    if (!chosen) return;
    URL.revokeObjectURL(shown.src);
    shown.src = URL.createObjectURL(chosen);
    shown.hidden = false;
    const form = new FormData();
    form.append("images", chosen, "image");
    question(label, form);
  };
  file.addEventListener("change", () => { take(file.files[0]); file.value = ""; });
  for (const name of ["dragover", "dragleave", "drop"]) {
    label.addEventListener(name, (event) => {
      event.preventDefault();
      label.classList.toggle("over", name === "dragover");
      if (name === "drop") take(event.dataTransfer.files[0]);
    });
  }
  document.addEventListener("paste", (event) => {
    if (!document.getElementById("part-try").hidden) take(event.clipboardData.files[0]);
  });
  return el("form", { class: "images", onsubmit: (event) => event.preventDefault() }, file, label);
}

// What was asked, once more as an example of the class that it is.

async function correction(content, explanation) {
  const said = explanation.classes[0].class_name;
  const ranked = explanation.classes.map((one) => one.class_name);
  const names = [...new Set([...ranked, ...await classNames(classes)])].filter((name) => name !== said);
  const select = el("select", { id: "right-class", required: true }, el("option", { value: "" }, "choose a class"), names.map((name) => el("option", { value: name }, name)));
  const button = el("button", { class: "quiet small" }, "Add as an example");
  const form = el("form", { class: "wrong" }, el("label", { for: "right-class" }, "This is wrong, it is"), select, button);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    const name = select.value;
    try {
      const { before } = await post(address(name), await sent(content));
      replace(form, el("p", { class: "strong" }, `Added as an example of ${name}; it counts from the next fit on.`), undoing(form, content, Object.values(before)[0]));
      announce(`Added as an example of ${name}`);
      await look();
    } catch (error) {
      button.disabled = false;
      form.querySelector(".bad")?.remove();
      form.append(failure(error));
    }
  });
  return form;
}

const address = (name) => `v1/run/examples${name === null ? "" : `?${new URLSearchParams({ class: name })}`}`;

// An image goes along in base64: a page of another site could send a form, but not this.
async function sent(content) {
  if (!(content instanceof FormData)) return content;
  const bytes = new Uint8Array(await content.get("images").arrayBuffer());
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return { images: [{ data: btoa(text) }] };
}

function undoing(form, content, before) {
  return el("button", { type: "button", class: "quiet small", onclick: async () => {
    try {
      await post(address(before), await sent(content));
      replace(form, el("p", { class: "hint" }, "Undone."));
      await look();
    } catch (error) {
      replace(form, failure(error));
    }
  } }, "Undo");
}

async function question(button, content) {
  const number = ++asked;
  button.setAttribute("aria-busy", "true");
  at.result.setAttribute("aria-busy", "true");
  try {
    const explanation = await post("v1/explain", content);
    if (number !== asked) return;
    const right = classes ? await correction(content, explanation) : null;
    if (number !== asked) return;
    replace(at.result, answer(explanation, right));
    announce(announcement(explanation));
    if (at.result.getBoundingClientRect().top > innerHeight - 120) at.result.scrollIntoView({ block: "start" });
  } catch (error) {
    if (number === asked) replace(at.result, failure(new Error(error.message.replace(/^images\.0: /, ""))));
  } finally {
    if (number === asked) {
      button.removeAttribute("aria-busy");
      at.result.removeAttribute("aria-busy");
    }
  }
}

function announcement(explanation) {
  const best = explanation.classes[0];
  return `${best.class_name}, ${percent(best.after)}${explanation.unknown_share === null ? "" : ", unlike anything known"}`;
}

function answer(explanation, right) {
  const best = explanation.classes[0];
  const before = explanation.classes.find((one) => one.before_rank === 1);
  return [
    el("div", { class: "answer" },
      el("h3", {}, best.class_name),
      el("p", { class: "share" }, percent(best.after)),
      explanation.unknown_share === null ? null : el("p", { class: "strange" }, el("span", { class: "tag" }, "unlike anything known"),
        el("span", { class: "hint" }, `At most ${percent(explanation.unknown_share)} of inputs like the examples look this strange, so the answer may mean nothing.`)), right),
    afterList(explanation),
    before ? beforeList(explanation, before) : null,
    before ? el("div", { class: "pair" },
      neighbours("Nearest given samples", explanation.given, best, "The run has no given samples."),
      neighbours("Nearest synthetic samples", explanation.synthetic, best, "This run has no synthetic samples: no generator was used, or none passed the gate.")) : null,
    explanation.why_not ? el("p", { class: "hint" }, explanation.why_not) : null,
  ];
}

function afterList(explanation) {
  const best = explanation.classes[0];
  return el("section", { class: "panel", "aria-label": "Probabilities" }, el("h3", {}, "Probabilities"),
    el("p", { class: "hint" }, "What the server answers."),
    el("ol", { class: "ranking" }, explanation.classes.slice(0, SHOWN).map((one) => el("li", { class: one === best ? "best" : "" },
      el("span", { class: "rank" }, one.after_rank), el("span", { class: "name" }, one.class_name), el("span", { class: "value" }, percent(one.after)),
      bar(one.after, one === best ? "" : "faint"), el("span", { class: "note" }, moved(one))))));
}

// Folded away: a comparison with what the embedder alone would say, for those who ask for it.
function beforeList(explanation, first) {
  const ranked = explanation.classes.filter((one) => one.before_rank !== null).sort((a, b) => a.before_rank - b.before_rank);
  const how = explanation.compared_with === "descriptions" ? (described ? "the class descriptions" : "the class names") : "the mean of each class's given samples";
  const rows = ranked.slice(0, SHOWN);
  const best = explanation.classes[0];
  if (best.before_rank !== null && !rows.includes(best)) rows.splice(SHOWN - 1, 1, best);
  return el("details", { class: "panel fold" }, el("summary", {}, el("h3", {}, "Before calibration"),
    el("span", { class: "hint" }, first === best ? "the same class was first" : `it would have been ${first.class_name}`)),
    el("p", { class: "hint" }, `Cosine of the raw embedding with ${how}, as shares (softmax, temperature ${explanation.temperature}).`),
    el("ol", { class: "ranking", "aria-label": "Before calibration" }, rows.map((one) => el("li", { class: one === best ? "best" : "", value: one.before_rank },
      el("span", { class: "rank" }, one.before_rank), el("span", { class: "name" }, one.class_name), el("span", { class: "value" }, percent(one.before)),
      bar(one.before, one === best ? "" : "faint"), el("span", { class: "note" }, `cosine ${signed(one.similarity)}`)))),
    explanation.without.length ? el("p", { class: "hint" }, `Not ranked here, since the run keeps no vector of it before the next fit: ${few(explanation.without)}.`) : null);
}

const few = (names) => (names.length > 5 ? `${names.slice(0, 5).join(", ")} and ${names.length - 5} more` : names.join(", "));

const signed = (value) => value.toFixed(2).replace("-", "−");

function moved(one) {
  if (one.before_rank === null || one.before_rank === one.after_rank) return "";
  return `${one.before_rank > one.after_rank ? "up" : "down"} from ${ordinal(one.before_rank)} before calibration`;
}

function neighbours(title, samples, best, none) {
  const rows = samples.map((one) => el("li", {}, one.image ? thumbnail(one.id, `A sample of ${one.class_name}`) : el("p", { class: "quote" }, one.text),
    el("p", { class: "under" }, el("span", { class: one.class_name === best.class_name ? "tag same" : "tag" }, one.class_name),
      el("span", { class: "note" }, `similarity ${signed(one.similarity)}`))));
  return el("section", { class: "panel", "aria-label": title }, el("h3", {}, title),
    rows.length ? el("ol", { class: samples[0].image ? "neighbours gallery" : "neighbours" }, rows) : el("p", { class: "hint" }, none));
}
