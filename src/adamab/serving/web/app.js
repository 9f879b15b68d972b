// The frame: which part is shown, what the run is doing, and following it while it goes on.

import { ago, announce, copied, counted, el, failure, get, post, replace, sentence } from "./parts.js";
import * as tryIt from "./try.js";
import * as classes from "./classes.js";
import * as run from "./run.js";
import * as samples from "./samples.js";

const PARTS = { try: tryIt, classes, run, samples };
const QUICK = 1200, SLOW = 6000;  // milliseconds between two looks at the run
const STATES = { running: "Running", finished: "Finished", stopped: "Stopped", "broken off": "Broken off", "model only": "Model only" };
const page = { overview: null, part: null, timer: null, behind: 0, begun: new Set(), notLoaded: null };

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
      part.begin(section, page.overview, look);
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
  const { state, changed, task, run: directory, rounds } = page.overview;
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
  const { state, model, refit } = page.overview;
  const notices = [];
  const ended = { stopped: "The fit was stopped before its end.", "broken off": "The fit broke off before its end." }[state];
  if (ended) notices.push(el("p", {}, `${ended} This goes on where it was:`), copied(refit));
  if (model === null) {
    notices.push(el("p", {}, state === "running"
      ? "The first fit is under way. There is no model to try yet; it is loaded when the fit ends."
      : state === "finished" ? "The fit has ended; its model is being loaded."
        : "This run has no model yet; it is loaded here when a fit has ended."));
  } else if (model.newer && state !== "running") {
    const button = el("button", { type: "button", class: "main small", onclick: reload }, "Use the new model");
    notices.push(el("p", {}, "The run's model has changed. The server still answers with the earlier one. "), button);
    if (page.notLoaded !== null) notices.push(failure(new Error(page.notLoaded)));
  }
  const place = document.getElementById("notices");
  const words = notices.map((node) => node.textContent).join("");
  if (place.dataset.words === words) return;
  place.dataset.words = words;
  replace(place, notices.length ? el("div", { class: "notice", role: "status" }, notices) : null);
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
    || before.model?.digest !== now.model?.digest || before.model?.newer !== now.model?.newer;
}

// Look at the run now, and again soon if it is going on.
async function look() {
  clearTimeout(page.timer);
  try {
    const before = page.overview;
    const now = await get("v1/run");
    page.overview = now;
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
  const busy = page.overview !== null && (page.overview.state === "running" || (page.overview.state === "finished" && page.overview.model === null));
  page.timer = setTimeout(look, busy ? QUICK : SLOW);
}

function typing(event) {
  return event.target.closest("input, textarea, select, dialog") !== null || event.ctrlKey || event.metaKey || event.altKey;
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
