// The HTTP interface, read from the server's own OpenAPI document; nothing is loaded from elsewhere.

import { copied, el, failure, get, replace, sentence } from "./parts.js";

const main = document.getElementById("main");

// A schema that is named elsewhere in the document.
function resolved(schema, components) {
  const name = schema?.$ref?.split("/").at(-1);
  return name ? { title: name, ...components[name] } : schema ?? {};
}

function kind(schema, components) {
  const whole = resolved(schema, components);
  const choices = whole.anyOf;
  if (choices) return [...new Set(choices.map((one) => kind(one, components)))].filter((one) => one !== "null").join(" or ");
  if (whole.type === "array") return `list of ${kind(whole.items, components)}s`;
  if (whole.format === "binary") return "file";
  return whole.type ?? "text";
}

const HUGE = 2 ** 31 - 1;

function limits(schema) {
  const all = [schema, ...(schema.anyOf ?? [])];
  const words = [["exclusiveMinimum", "above"], ["minimum", "at least"], ["exclusiveMaximum", "below"], ["maximum", "at most"]];
  return words.flatMap(([key, text]) => {
    const value = all.find((one) => one[key] !== undefined)?.[key];
    return value === undefined || value === HUGE ? [] : [`${text} ${value}`];
  }).join(", ");
}

// Every field with those within it, such as results[].class.
function named(schema, components, prefix = "") {
  const whole = resolved(schema, components);
  if (whole.anyOf) return whole.anyOf.flatMap((choice) => named(choice, components, prefix)).map((one) => ({ ...one, always: false }));
  return Object.entries(whole.properties ?? {}).flatMap(([name, one]) => {
    const path = `${prefix}${name}`, choices = (one.anyOf ?? [one]).map((choice) => resolved(choice, components));
    const list = choices.find((choice) => choice.type === "array");
    const inner = list ? named(list.items, components, `${path}[].`) : named(choices[0], components, `${path}.`);
    return [{ path, one, always: whole.required?.includes(name), about: one.description ?? resolved(one, components).description ?? "" }, ...inner];
  });
}

function fields(schema, components) {
  const rows = named(schema, components);
  if (!rows.length) return el("p", { class: "hint" }, kind(schema, components));
  return el("dl", { class: "fields" }, rows.flatMap(({ path, one, always, about }) => {
    const note = [kind(one, components), limits(one), always ? "always there" : ""].filter(Boolean).join(", ");
    return [el("dt", {}, el("code", {}, path)), el("dd", {}, about, " ", el("span", { class: "note" }, `(${note})`))];
  }));
}

function body(title, content, components) {
  return Object.entries(content ?? {}).map(([type, { schema }]) => el("section", {}, el("h3", {}, `${title} (${type})`), fields(schema ?? {}, components)));
}

function operation(path, method, about, components) {
  const example = method === "post"
    ? `curl ${location.origin}${path} -H 'Content-Type: application/json' -d '{"text": "..."}'` : `curl ${location.origin}${path}`;
  const refusals = Object.entries(about.responses).filter(([status]) => status >= "400");
  return el("article", { class: "panel" }, el("h2", {}, el("span", { class: "tag same" }, method.toUpperCase()), " ", el("code", {}, path)),
    el("p", {}, sentence(about.description ?? about.summary ?? path)), copied(example),
    body("What is sent", about.requestBody?.content, components), body("What is answered", about.responses["200"]?.content, components),
    refusals.length ? el("details", { class: "fold" }, el("summary", {}, el("h3", {}, "What is refused")),
      el("dl", { class: "keys" }, refusals.flatMap(([status, one]) => [el("dt", {}, status), el("dd", {}, one.description)]))) : null);
}

try {
  const { info, paths, components } = await get("openapi.json");
  replace(main, el("p", { class: "hint" }, `${info.summary} Where the server was started with ADAMAB_TOKEN, send "Authorization: Bearer TOKEN" as well.`),
    Object.entries(paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, about]) => operation(path, method, about, components?.schemas ?? {}))));
} catch (error) {
  replace(main, failure(error));
}
