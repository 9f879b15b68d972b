// What all parts of the page share: elements, requests, numbers. Data always becomes text, never HTML.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

export function replace(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

export function announce(text) {
  const place = document.getElementById("announcer");
  place.textContent = "";
  requestAnimationFrame(() => { place.textContent = text; });
}

// Requests

const TOKEN = "adamab-token";
let asking = null;

function token() {
  try {
    return sessionStorage.getItem(TOKEN);
  } catch {
    return null;
  }
}

function askForToken(wrong) {
  if (asking !== null) return asking;
  const dialog = document.getElementById("ask");
  const field = document.getElementById("token");
  document.getElementById("ask-wrong").textContent = wrong ? "The server does not take this token." : "";
  field.value = "";
  asking = new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      asking = null;
      const given = field.value.trim();
      field.value = "";
      if (given) sessionStorage.setItem(TOKEN, given);
      resolve(given !== "");
    }, { once: true });
  });
  dialog.showModal();
  return asking;
}

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function answered(path, options) {
  for (;;) {
    const used = token();
    const headers = { ...options.headers, ...(used ? { Authorization: `Bearer ${used}` } : {}) };
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refused(0, "unreachable", "The server does not answer. Is it still running?");
    }
    if (response.ok) return response;
    if (response.status === 401) {
      if (token() !== used || (await askForToken(used !== null))) continue;
    }
    const body = await response.json().catch(() => null);
    const problem = body?.error ?? { code: "failed", message: `the server answers ${response.status}` };
    throw new Refused(response.status, problem.code, problem.message);
  }
}

export async function get(path, query = {}) {
  const wanted = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = new URLSearchParams(wanted.map(([name, value]) => [name, String(value)])).toString();
  return (await answered(search ? `${path}?${search}` : path, {})).json();
}

export async function post(path, content) {
  const form = content instanceof FormData;
  const options = form
    ? { method: "POST", body: content }
    : { method: "POST", body: JSON.stringify(content), headers: { "Content-Type": "application/json" } };
  return (await answered(path, options)).json();
}

// The names of all classes, asked for again only when their number has changed or somebody says so.
let names = [];

export async function classNames(count) {
  if (names.length === count) return names;
  const all = [];
  for (let more = true; more;) {
    const data = await get("v1/run/classes", { offset: all.length, limit: 200 });
    all.push(...data.classes.map((one) => one.class));
    more = data.classes.length > 0 && all.length < data.total;
  }
  names = all;
  return names;
}

export function forgetNames() {
  names = [];
}

// Images are fetched, since an address in an <img> cannot carry the token.

const NOTHING = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==";  // one clear pixel
const thumbnails = new Map();
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    seen.unobserve(entry.target);
    show(entry.target);
  }
}, { rootMargin: "300px" });

async function loaded(id, query = "") {
  const response = await answered(`v1/run/images/${encodeURIComponent(id)}${query}`, {});
  return URL.createObjectURL(await response.blob());
}

async function show(image) {
  const id = image.dataset.id;
  if (!thumbnails.has(id)) thumbnails.set(id, loaded(id));
  try {
    image.src = await thumbnails.get(id);
  } catch {
    thumbnails.delete(id);
    image.alt = "This image cannot be shown.";
  }
}

export function thumbnail(id, alt) {
  const image = el("img", { class: "thumbnail", src: NOTHING, alt, "data-id": id, width: 96, height: 96 });
  seen.observe(image);
  return image;
}

// The whole image, in a dialog.
export async function enlarge(id, alt) {
  const dialog = document.getElementById("large");
  const place = document.getElementById("large-image");
  replace(place, el("p", { class: "hint" }, "Loading…"));
  document.getElementById("large-title").textContent = alt;
  if (!dialog.open) dialog.showModal();
  try {
    const address = await loaded(id, "?large=true");
    dialog.addEventListener("close", () => URL.revokeObjectURL(address), { once: true });
    replace(place, el("img", { src: address, alt }));
  } catch (error) {
    replace(place, failure(error));
  }
}

// Numbers and words

const whole = new Intl.NumberFormat("en");

export const number = (value) => whole.format(value);

export function percent(share) {
  const value = 100 * share;
  if (value === 0) return "0 %";
  if (value < 0.1) return "< 0.1 %";
  if (value < 10) return `${value.toFixed(1)} %`;
  if (value > 99 && value < 100) return `${(Math.floor(value * 10) / 10).toFixed(1)} %`;
  return `${value.toFixed(0)} %`;
}

export function figure(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 100000)) return value.toExponential(1).replaceAll("-", "−");
  if (value === 0) return "0";
  return (size >= 10 ** digits ? value.toFixed(0) : value.toPrecision(digits)).replace("-", "−");
}

export function money(usd) {
  return `$${usd < 0.01 && usd > 0 ? usd.toFixed(4) : usd.toFixed(2)}`;
}

export function counted(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

export function ago(seconds) {
  if (seconds < 10) return "just now";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

export function ordinal(rank) {
  const ends = { 1: "st", 2: "nd", 3: "rd" };
  return `${rank}${(rank % 100 > 10 && rank % 100 < 14) ? "th" : ends[rank % 10] ?? "th"}`;
}

// A thing to be said in place of a list that is empty.
export function empty(title, ...content) {
  return el("div", { class: "empty" }, el("p", { class: "strong" }, title), content.length ? el("p", {}, ...content) : null);
}

export function failure(error) {
  return el("p", { class: "bad", role: "alert" }, sentence(error.message));
}

export function sentence(text) {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(begun) ? begun : `${begun}.`;
}

// A bar of a share between 0 and 1; what it says stands beside it as text.
export function bar(share, kind = "") {
  const inner = el("span", { class: `fill ${kind}` });
  inner.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return el("span", { class: "track", "aria-hidden": "true" }, inner);
}

export function debounced(action, delay = 250) {
  let timer = null;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), delay);
  };
}

export function copied(text) {
  const button = el("button", { type: "button", class: "quiet small" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      announce("Copied");
    } catch {
      button.textContent = "Select it and copy";
    }
  });
  return el("span", { class: "command" }, el("code", {}, text), button);
}
