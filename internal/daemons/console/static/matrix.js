// The results of a job as a matrix, and the difference of two returns word by word.

import { h, status } from "./dom.js";
import { isStates } from "./result.js";
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
  const cell = (id, name) => {
    const s = results.get(id).return[name];
    const kind = s ? kindOf(s) : "none";
    const text = label(name) + " on " + id + ": " + words[kind] + (s && s.comment ? ". " + plain(s.comment).slice(0, 200) : "");
    return h("td", { class: "cell " + kind, title: text }, h("span", { "aria-hidden": "true" }, kinds[kind] || "\u00b7"), h("span", { class: "hidden-text" }, words[kind]));
  };
  const table = h("table", { class: "matrix", "aria-label": "States by minion" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Minion"), shown.map(([name], i) => h("th", { scope: "col", title: label(name) }, String(i + 1))))),
    h("tbody", {}, rows.slice(0, maxMinions).map((id) => h("tr", { "data-minion": id },
      h("th", { scope: "row" }, h("a", { href: "#/minions/" + address(id) }, id)), shown.map(([name]) => cell(id, name))))));
  const counts = (c) => ["failed", "waiting", "changed", "ok"].filter((k) => c[k]).map((k) => [status(k, c[k] + " " + words[k]), " "]);
  return h("details", { class: "card", id: "matrix" }, h("summary", {}, "Matrix of " + rows.length + " minions and " + all.length + " states"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Matrix" }, table),
    rows.length > maxMinions && h("p", { class: "cut" }, (rows.length - maxMinions) + " more minions are not shown"),
    h("ol", { class: "legend" }, shown.map(([name, c]) => h("li", {}, h("span", { class: "data" }, label(name)), " ", counts(c.counts)))),
    all.length > maxStates && h("p", { class: "cut" }, (all.length - maxStates) + " more states are not shown"));
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
