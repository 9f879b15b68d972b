// Figures as inline SVG: drawn for the width that is there, with a table for those who do not see them.

import { el, figure, number, svg } from "./parts.js";

function ticks(low, high, count) {
  const span = high - low || 1;
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? rough;
  const ticks = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) ticks.push(Number(at.toPrecision(12)));
  return ticks;
}

// A line of points [x, y]; redrawn when the width changes.
export function lineChart(points, { label, x, y, height = 220 }) {
  const read = el("p", { class: "reading", "aria-hidden": "true" }, " ");
  const place = el("div", { class: "chart" });
  const draw = () => {
    const width = Math.max(260, place.clientWidth || 600);
    place.replaceChildren(lineSvg(points, { label, height, width, read, x, y }));
  };
  new ResizeObserver(draw).observe(place);
  requestAnimationFrame(draw);
  return el("figure", {}, place, read, table([x, y], points.map(([at, value]) => [number(at), figure(value, 4)])));
}

function lineSvg(points, { label, height, width, read, x, y }) {
  const left = 46, right = 12, top = 10, bottom = 28;
  const xs = points.map((point) => point[0]), ys = points.map((point) => point[1]);
  const low = Math.min(0, ...ys), high = Math.max(...ys) * 1.05 || 1;
  const first = Math.min(...xs), last = Math.max(...xs);
  const across = (value) => left + ((value - first) / (last - first || 1)) * (width - left - right);
  const up = (value) => height - bottom - ((value - low) / (high - low)) * (height - top - bottom);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  for (const value of ticks(low, high, 4)) {
    drawing.append(
      svg("line", { class: "grid", x1: left, x2: width - right, y1: up(value), y2: up(value) }),
      svg("text", { class: "tick", x: left - 8, y: up(value) + 4, "text-anchor": "end" }, String(value)),
    );
  }
  for (const value of ticks(first, last, Math.min(8, Math.floor(width / 90))).filter(Number.isInteger)) {
    const atEnd = across(value) > width - 30;
    drawing.append(svg("text", { class: "tick", x: atEnd ? width : across(value), y: height - 8, "text-anchor": atEnd ? "end" : "middle" }, number(value)));
  }
  const path = points.map(([at, value], i) => `${i ? "L" : "M"}${across(at).toFixed(1)} ${up(value).toFixed(1)}`).join("");
  drawing.append(svg("path", { class: "line", d: path }));
  const mark = svg("circle", { class: "mark", r: 4, cx: across(xs.at(-1)), cy: up(ys.at(-1)) });
  drawing.append(mark);
  const tell = (event) => {
    const at = event.offsetX * (width / drawing.clientWidth || 1);
    const near = points.reduce((best, point) => (Math.abs(across(point[0]) - at) < Math.abs(across(best[0]) - at) ? point : best));
    mark.setAttribute("cx", across(near[0]));
    mark.setAttribute("cy", up(near[1]));
    read.textContent = `${x} ${number(near[0])}: ${y.toLowerCase()} ${figure(near[1], 4)}`;
  };
  drawing.addEventListener("pointermove", tell);
  drawing.addEventListener("pointerleave", () => { read.textContent = " "; });
  return drawing;
}

// In which rounds a class was chosen: one mark a column, darker where it was chosen more often.
export function strip(columns, marks, label) {
  const width = Math.max(columns, 1) * 10;
  const most = Math.max(1, ...marks.map(([, count]) => count));
  const drawing = svg("svg", { class: "strip", viewBox: `0 0 ${width} 16`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  drawing.append(svg("rect", { class: "strip-ground", x: 0, y: 0, width, height: 16 }));
  for (const [column, count] of marks) {
    const opacity = 0.35 + 0.65 * (count / most);
    drawing.append(svg("rect", { class: "strip-mark", x: column * 10 + 1, y: 1, width: 8, height: 14, opacity }));
  }
  return drawing;
}

// How a count grew: no axes, the numbers stand beside it.
export function sparkline(values, most, label) {
  const width = 120, height = 28;
  const across = (i) => (values.length > 1 ? (i / (values.length - 1)) * (width - 6) : 0) + 3;
  const up = (value) => height - 3 - (value / (most || 1)) * (height - 6);
  const line = values.map((value, i) => `${i ? "L" : "M"}${across(i).toFixed(1)} ${up(value).toFixed(1)}`).join("");
  const drawing = svg("svg", { class: "sparkline", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  drawing.append(svg("path", { class: "line", d: line }));
  if (values.length) drawing.append(svg("circle", { class: "mark", r: 2.5, cx: across(values.length - 1), cy: up(values.at(-1)) }));
  return drawing;
}

export function table(heads, rows, { title = "Show as a table" } = {}) {
  return el("details", { class: "as-table" }, el("summary", {}, title), el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": heads.join(", ") },
    el("table", {},
      el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell) => el("td", {}, cell))))),
    )));
}
