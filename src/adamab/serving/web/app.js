// The frame: which part is shown, what the run is doing, and following it while it goes on.

import { ago, announce, copied, counted, el, failure, get, number, percent, post, replace, sentence } from "./parts.js";
import * as tryIt from "./try.js";
import * as classes from "./classes.js";
import * as run from "./run.js";
import * as samples from "./samples.js";

const PARTS = { try: tryIt, classes, run, samples };
const QUICK = 1200, SLOW = 6000;  // milliseconds between two looks at the run
const STATES = { running: "Running", finished: "Finished", stopped: "Stopped", "broken off": "Broken off", "model only": "Model only" };
const page = { overview: null, part: null, timer: null, behind: 0, begun: new Set(), notLoaded: null, roundsBefore: Infinity, fitted: null, refused: null };

function wanted() {
  const [name, query] = location.hash.slice(1).split("?");
  return { name: name in PARTS ? name : "try", query: new URLSearchParams(query ?? "") };
}

async function showPart({ focus = false } = {}) {
  const { name, query } = wanted();
  const part = PARTS[name];
  page.part = name;
  for (const other of Object.keys(PARTS)) document.getElementById(`part-${other}`).hidden = other !== name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  title();
  if (focus) document.getElementById("main").focus({ preventScroll: true });
  if (page.overview === null) return;
  const section = document.getElementById(`part-${name}`);
  try {
    if (!page.begun.has(name)) {
      page.begun.add(name);
      part.begin(section, page.overview, { look, fitButton });
    }
    await part.show(page.overview, query);
  } catch (error) {
    trouble(error);
  }
}

function title() {
  const names = { try: "Try it", classes: "Classes", run: "The run", samples: "Samples" };
  document.title = `${names[page.part]} – ${page.overview?.task ?? page.overview?.run ?? "adamab"}`;
}

function showState() {
  const { changed, task, run: directory, rounds, fit } = page.overview;
  const state = fit?.state === "running" ? "running" : page.overview.state;
  const heading = document.getElementById("task");
  heading.textContent = task ?? directory;
  const since = changed === null ? "" : ago(Math.max(0, Date.now() / 1000 + page.behind - changed));
  const when = state !== "running" ? since : rounds ? `${counted(rounds, "round")}, the last ${since}` : `begun ${since}`;
  const place = document.getElementById("state");
  if (place.dataset.state !== state) {  // screen readers hear the state, not every round
    place.dataset.state = state;
    replace(place, el("span", { class: "dot", "aria-hidden": "true" }), el("span", { class: "strong" }, STATES[state] ?? state),
      el("span", { class: "since", "aria-hidden": "true" }));
  }
  place.querySelector(".since").textContent = when;
  place.title = changed === null ? "" : new Date(changed * 1000).toLocaleString();
}

function showNotices() {
  const { state, model, refit, fit, waiting } = page.overview;
  const notices = [];
  const ended = { stopped: "The fit was stopped before its end.", "broken off": "The fit broke off before its end." }[state];
  const fitting = fit?.state === "running";
  if (fitting) notices.push(fitProgress());
  else if (fit?.state === "failed") notices.push(failure(new Error(`The fit failed: ${fit.message}`)));
  else if (page.fitted) notices.push(el("p", {}, page.fitted));
  if (!fitting && page.refused !== null) notices.push(failure(new Error(page.refused)));
  if (!fitting && state !== "running" && (ended || waiting)) {
    const what = [ended, waiting ? `${counted(waiting, "change waits", "changes wait")} for the next fit.` : null].filter(Boolean).join(" ");
    notices.push(el("p", {}, `${what} What was bought is not bought again.`), fitButton(ended ? "Go on with the fit" : "Fit again"),
      el("span", { class: "hint" }, "or ", copied(refit)));
  }
  if (model === null) {
    notices.push(el("p", {}, state === "running" || fitting
      ? "The first fit is under way. There is no model to try yet; it is loaded when the fit ends."
      : state === "finished" ? "The fit has ended; its model is being loaded."
        : "This run has no model yet; it is loaded here when a fit has ended."));
  } else if (model.newer && state !== "running" && !fitting) {
    const button = el("button", { type: "button", class: "main small", onclick: reload }, "Use the new model");
    notices.push(el("p", {}, "The run's model has changed. The server still answers with the earlier one. "), button);
    if (page.notLoaded !== null) notices.push(failure(new Error(page.notLoaded)));
  }
  const place = document.getElementById("notices");
  const words = notices.map((node) => node.textContent).join("");
  if (place.dataset.words !== words) {
    place.dataset.words = words;
    replace(place, notices.length ? el("div", { class: "notice", role: "status" }, notices) : null);
  }
  if (fitting) showProgress(place);
}

// How far a fit is that was started here; another one is followed round by round in The run.
function fitProgress() {
  return el("div", { class: "fitting" }, el("p", {}, el("span", { class: "strong" }, "Fitting again."),
    " The server answers with the earlier model meanwhile. ", el("span", { class: "since", "aria-hidden": "true" })),
    el("progress", { "aria-label": "Fitting again" }), el("button", { type: "button", class: "quiet small", onclick: stopFit }, "Stop"));
}

function showProgress(place) {
  const { fit, rounds, budget, synthetic } = page.overview;
  const more = Math.max(0, rounds - page.roundsBefore);
  const bar = place.querySelector("progress");
  if (more && budget?.samples) {
    bar.max = budget.samples;
    bar.value = synthetic;
  }
  const words = [fit.stopping ? "Stopping after the calls on their way" : null, `${Math.round(fit.seconds)} s`, more ? counted(more, "new round") : null,
    more && budget?.samples ? `${number(synthetic)} of at most ${number(budget.samples)} synthetic samples` : null];
  place.querySelector(".fitting .since").textContent = words.filter(Boolean).join(", ");
}

function fitButton(words) {
  return el("button", { type: "button", class: "main small", onclick: startFit }, words);
}

async function startFit(event) {
  event.target.disabled = true;
  page.roundsBefore = page.overview.rounds;
  page.fitted = page.refused = null;
  try {
    await post("v1/run/fit", {});
    announce("The fit has begun");
  } catch (error) {
    page.refused = error.message;
    announce(error.message);
  }
  event.target.disabled = false;
  await look();
}

async function stopFit(event) {
  event.target.disabled = true;
  await post("v1/run/fit/stop", {}).catch((error) => { page.refused = error.message; });
  await look();
}

// What to say when a fit that this page has seen has ended.
function endOfFit(before, now) {
  if (before?.fit?.state !== "running" || now.fit?.state === "running") return;
  const estimate = now.estimate ? ` The expected accuracy is ${percent(now.estimate.accuracy)}.` : "";
  page.fitted = now.fit?.state === "done" ? `Fitted again in ${Math.round(now.fit.seconds)} s; the new model is in use.${estimate}` : null;
  announce(page.fitted ?? (now.fit?.state === "failed" ? `The fit failed: ${now.fit.message}` : "The fit was stopped"));
}

async function reload(event) {
  event.target.disabled = true;
  try {
    await post("v1/run/reload", {});
    page.notLoaded = null;
    announce("The new model is in use");
    await look();
  } catch (error) {
    event.target.disabled = false;
    page.notLoaded = error.message;
    showNotices();
  }
}

function trouble(error) {
  const place = document.getElementById("notices");
  place.dataset.words = "trouble";
  const again = el("button", { type: "button", class: "quiet small", onclick: () => look() }, "Try again");
  replace(place, el("div", { class: "notice" }, failure(new Error(sentence(error.message))), again));
}

function differs(before, now) {
  return before === null || ["state", "last", "synthetic", "rejected", "waiting"].some((key) => before[key] !== now[key])
    || before.fit?.state !== now.fit?.state
    || before.model?.digest !== now.model?.digest || before.model?.newer !== now.model?.newer;
}

// Look at the run now, and again soon if it is going on.
async function look() {
  clearTimeout(page.timer);
  try {
    const before = page.overview;
    const now = await get("v1/run");
    page.overview = now;
    endOfFit(before, now);
    page.behind = now.now - Date.now() / 1000;
    showState();
    showNotices();
    title();
    if (before === null) await showPart();
    else if (differs(before, now)) await PARTS[page.part].follow(now);
  } catch (error) {
    trouble(error);
  }
  schedule();
}

function schedule() {
  clearTimeout(page.timer);
  if (document.hidden) return;
  const busy = page.overview !== null && (page.overview.state === "running" || page.overview.fit?.state === "running" || (page.overview.state === "finished" && page.overview.model === null));
  page.timer = setTimeout(look, busy ? QUICK : SLOW);
}

function typing(event) {
  return event.target.closest("input:not([type=checkbox]), textarea, select, dialog") !== null || event.ctrlKey || event.metaKey || event.altKey;
}

document.addEventListener("keydown", (event) => {
  if (typing(event)) return;
  const names = Object.keys(PARTS);
  if (event.key >= "1" && event.key <= String(names.length)) location.hash = names[Number(event.key) - 1];
  else if (event.key === "?") document.getElementById("keys").showModal();
  else if (page.part === "samples" && page.begun.has("samples")) samples.key(event);
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(page.timer) : look()));
window.addEventListener("hashchange", () => showPart({ focus: true }));

const THEMES = ["auto", "light", "dark"];
const themes = document.getElementById("theme");
const current = () => document.documentElement.dataset.theme ?? "auto";
const nameTheme = () => { themes.textContent = `Theme: ${current()}`; };
themes.addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(current()) + 1) % THEMES.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("adamab-theme", next);
  } catch {
    // Then it holds for this page only.
  }
  nameTheme();
});
nameTheme();
showPart();
look();
