// The results of a job as a matrix, and the difference of two returns word by word.

import { h, status, ask } from "./dom.js";
import { isStates, changesOf } from "./result.js";
import { address, plain } from "./text.js";

const maxMinions = 200, maxStates = 60;

const kinds = { failed: "\u2717", waiting: "\u2026", changed: "\u0394", ok: "\u2713" };
const words = { failed: "failed", waiting: "would change", changed: "changed", ok: "in order", none: "did not run" };

function kindOf(s) {
  if (s.result === false) return "failed";
  if (s.result === null) return "waiting";
  return s.changes && Object.keys(s.changes).length > 0 ? "changed" : "ok";
}

// matrix shows the minions of a job against its states; null unless at least two minions returned
// states. A column has the number of its state in the list below.
export function matrix(ids, results) {
  const rows = ids.filter((id) => results.has(id) && isStates(results.get(id).return));
  if (rows.length < 2) return null;
  const columns = new Map(); // by state: {order, counts}
  for (const id of rows) {
    for (const [name, s] of Object.entries(results.get(id).return)) {
      if (!columns.has(name)) columns.set(name, { order: s.__run_num__ || 0, counts: {} });
      const c = columns.get(name).counts;
      c[kindOf(s)] = (c[kindOf(s)] || 0) + 1;
    }
  }
  const all = [...columns].sort((a, b) => a[1].order - b[1].order || (a[0] < b[0] ? -1 : 1));
  const shown = all.slice(0, maxStates);
  const label = (name) => { const p = name.split("_|-"); return p[0] + "." + p[3] + ": " + p[2]; };
  const minionsShown = rows.slice(0, maxMinions);
  const cell = (id, name, i) => {
    const s = results.get(id).return[name];
    const kind = s ? kindOf(s) : "none";
    const text = label(name) + " on " + id + ": " + words[kind] + (s && s.comment ? ". " + plain(s.comment).slice(0, 200) : "");
    return h("td", { role: "gridcell", class: "cell " + kind, title: text, tabindex: "-1", "aria-colindex": i + 2, on: { click: () => open(id, name) } },
      h("span", { "aria-hidden": "true" }, kinds[kind] || "\u00b7"), h("span", { class: "hidden-text" }, words[kind]));
  };
  // open shows one cell.
  const open = (id, name) => {
    const s = results.get(id).return[name];
    const kind = s ? kindOf(s) : "none";
    ask(label(name) + " on " + id, h("div", { id: "cell" }, h("p", {}, kind === "none" ? words.none : status(kind, words[kind]), " on ", h("a", { href: "#/minions/" + address(id) }, id)),
      s && s.comment && h("pre", { class: "data" }, plain(s.comment)), kind === "changed" || (kind === "waiting" && s.changes) ? changesOf(s.changes) : null));
  };
  const head = h("tr", { role: "row", "aria-rowindex": 1 }, h("th", { role: "columnheader", scope: "col", "aria-colindex": 1, tabindex: "-1" }, "Minion"),
    shown.map(([name], i) => h("th", { role: "columnheader", scope: "col", title: label(name), "aria-colindex": i + 2, tabindex: "-1" }, String(i + 1), h("span", { class: "hidden-text" }, " " + label(name)))));
  const lines = minionsShown.map((id, n) => h("tr", { role: "row", "data-minion": id, "aria-rowindex": n + 2 },
    h("th", { role: "rowheader", scope: "row", "aria-colindex": 1 }, h("a", { href: "#/minions/" + address(id), tabindex: "-1" }, id)), shown.map(([name], i) => cell(id, name, i))));
  const table = h("table", { class: "matrix", role: "grid", "aria-label": "States by minion", "aria-describedby": "matrix-keys", "aria-readonly": "true", "aria-rowcount": rows.length + 1, "aria-colcount": all.length + 1 },
    h("thead", {}, head), h("tbody", {}, lines));
  keys(table, [head, ...lines], (r, c) => { if (r > 0 && c > 0) open(minionsShown[r - 1], shown[c - 1][0]); });
  const counts = (c) => ["failed", "waiting", "changed", "ok"].filter((k) => c[k]).map((k) => [status(k, c[k] + " " + words[k]), " "]);
  return h("details", { class: "card", id: "matrix" }, h("summary", {}, "Matrix of " + rows.length + " minions and " + all.length + " states"),
    h("p", { class: "quiet", id: "matrix-keys" }, "Arrow keys, Home, End, Page Up and Page Down go from cell to cell, with Ctrl to the first and last one. Enter opens a cell."),
    h("div", { class: "scroll" }, table),
    rows.length > maxMinions && h("p", { class: "cut" }, (rows.length - maxMinions) + " more minions are not shown"),
    h("ol", { class: "legend" }, shown.map(([name, c]) => h("li", {}, h("span", { class: "data" }, label(name)), " ", counts(c.counts)))),
    all.length > maxStates && h("p", { class: "cut" }, (all.length - maxStates) + " more states are not shown"));
}

const pageRows = 10; // that Page Up and Page Down go

// keys makes one stop for the Tab key of a grid, and lets arrow keys go from cell to cell.
function keys(table, lines, enter) {
  const at = (r, c) => { const cell = lines[r].children[c]; return cell.querySelector("a") || cell; };
  const last = [lines.length - 1, lines[0].children.length - 1];
  let now = [1, 1];
  const placeOf = (e) => {
    const cell = e.closest("td, th");
    return cell ? [lines.indexOf(cell.parentElement), [...cell.parentElement.children].indexOf(cell)] : null;
  };
  const set = (r, c) => {
    at(...now).tabIndex = -1;
    now = [r, c];
    at(r, c).tabIndex = 0;
  };
  set(Math.min(1, last[0]), Math.min(1, last[1]));
  table.addEventListener("focusin", (e) => { const p = placeOf(e.target); if (p) set(...p); });
  table.addEventListener("keydown", (e) => {
    const [r, c] = now;
    const to = {
      ArrowLeft: [r, c - 1], ArrowRight: [r, c + 1], ArrowUp: [r - 1, c], ArrowDown: [r + 1, c], PageUp: [Math.max(0, r - pageRows), c], PageDown: [Math.min(last[0], r + pageRows), c],
      Home: e.ctrlKey ? [0, 0] : [r, 0], End: e.ctrlKey ? last : [r, last[1]],
    }[e.key];
    if (e.altKey || e.metaKey || e.shiftKey) return;
    if ((e.key === "Enter" || e.key === " ") && at(r, c).localName !== "a") { e.preventDefault(); enter(r, c); return; }
    if (!to || (e.ctrlKey && e.key !== "Home" && e.key !== "End")) return;
    e.preventDefault(); // at an edge as well, where the page would scroll
    if (to[0] < 0 || to[0] > last[0] || to[1] < 0 || to[1] > last[1]) return;
    const next = at(...to);
    next.focus();
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  // goTo gives a cell of a new matrix the place of one of the old, and the focus if that had it.
  table.goTo = (place, focus) => {
    if (place[0] > last[0] || place[1] > last[1]) return;
    set(...place);
    if (focus) at(...place).focus({ preventScroll: true });
  };
  table.where = () => now;
}

// again keeps what the user has chosen in a matrix when a new one takes its place: it returns a function
// to call afterwards.
export function again(box) {
  const find = () => box.querySelector("table.matrix");
  const old = find();
  if (!old) return () => {};
  const [r, c] = old.where(), focus = old.contains(document.activeElement), line = old.rows[r];
  const minion = line.dataset.minion, state = old.rows[0].children[c].title, scroll = old.parentElement.scrollLeft;
  return () => {
    const table = find();
    if (!table) return;
    const row = minion === undefined ? 0 : [...table.rows].findIndex((l) => l.dataset.minion === minion);
    const column = c === 0 ? 0 : [...table.rows[0].children].findIndex((t) => t.title === state);
    table.parentElement.scrollLeft = scroll;
    if (row >= 0 && column >= 0) table.goTo([row, column], focus);
  };
}

const maxTokens = 600; // of each text: the work grows with the product

// difference shows what is different in text, compared with usual, word by word.
export function difference(usual, text) {
  const split = (s) => s.match(/\s+|[\w.:-]+|[^\s\w]/g) || [];
  const a = split(usual).slice(0, maxTokens), b = split(text).slice(0, maxTokens);
  // The longest common subsequence, from the ends of both.
  const width = b.length + 1, best = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      best[i * width + j] = a[i] === b[j] ? best[(i + 1) * width + j + 1] + 1 : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
    }
  }
  const out = h("pre", { class: "data diff" });
  let kind = "", run = "";
  const flush = () => {
    if (run) out.append(h(kind || "span", {}, run));
    run = "";
  };
  const put = (k, word) => {
    if (k !== kind) { flush(); kind = k; }
    run += word;
  };
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { put("", a[i]); i++; j++; }
    else if (j >= b.length || (i < a.length && best[(i + 1) * width + j] >= best[i * width + j + 1])) put("del", a[i++]);
    else put("ins", b[j++]);
  }
  flush();
  return out;
}

// readable writes a value for a comparison: one entry a line.
export function readable(v) {
  return typeof v === "string" ? v : JSON.stringify(v, null, 1) ?? "";
}
