// What minions return, as elements.

import { h, status } from "./dom.js";
import { plain } from "./text.js";

const maxNodes = 3000; // elements of one value

// tree shows a value. Maps and lists below the first level can be closed.
export function tree(v) {
  const room = { n: maxNodes };
  return node(v, room, 0);
}

function node(v, room, depth) {
  if (v === null || typeof v !== "object") {
    if (typeof v === "string" && v.includes("\n")) return h("pre", { class: "data" }, v);
    return h("span", { class: "data" }, v === null ? "None" : String(v));
  }
  const entries = Array.isArray(v) ? v.map((x) => ["-", x]) : Object.entries(v);
  if (entries.length === 0) return h("span", { class: "data quiet" }, Array.isArray(v) ? "[]" : "{}");
  const list = h("ul", { class: "tree" });
  for (const [i, [k, x]] of entries.entries()) {
    if (room.n-- <= 0) {
      list.append(h("li", { class: "cut" }, (entries.length - i) + " more entries are not shown"));
      break;
    }
    const key = h("span", { class: "key data" }, k === "-" ? "- " : k + ": ");
    const inner = x !== null && typeof x === "object" && Object.keys(x).length > 0;
    if (inner && k !== "-" && depth < 12) {
      list.append(h("li", {}, h("details", { open: Object.keys(x).length <= 8 }, h("summary", {}, key), node(x, room, depth + 1))));
    } else if (depth >= 12) {
      list.append(h("li", {}, key, h("span", { class: "data" }, plain(x).slice(0, 300))));
    } else {
      list.append(h("li", {}, key, node(x, room, depth + 1)));
    }
  }
  return list;
}

// isStates reports whether a value is the return of a state function.
export function isStates(v) {
  if (v === null || typeof v !== "object" || Array.isArray(v)) return false;
  const all = Object.entries(v);
  return all.length > 0 && all.every(([k, s]) => k.split("_|-").length === 4 && s !== null && typeof s === "object" && "result" in s);
}

const rank = (s) => (s.result === false ? 0 : s.result === null ? 1 : changedBy(s) ? 2 : 3);
const changedBy = (s) => s.changes && Object.keys(s.changes).length > 0;

// states shows states: failures first, then what would change, what has changed, and the rest.
export function states(v) {
  const all = Object.entries(v).map(([k, s]) => ({ parts: k.split("_|-"), ...s }));
  all.sort((a, b) => rank(a) - rank(b) || (a.__run_num__ || 0) - (b.__run_num__ || 0));
  const total = all.reduce((n, s) => n + (Number(s.duration) || 0), 0);
  const looks = [["failed", "failed"], ["waiting", "would change"], ["changed", "changed"], ["ok", "in order"]];
  return h("div", { class: "states" }, h("p", { class: "quiet" }, all.length + " states, " + (total / 1000).toFixed(2) + " s"),
    all.slice(0, 1000).map((s) => {
      const r = rank(s), [kind, word] = looks[r];
      return h("details", { class: "state-" + kind, open: r < 3 && all.length <= 200 },
        h("summary", {}, status(kind, word), " ", h("span", { class: "data" }, s.parts[0] + "." + s.parts[3] + ": " + (s.name || s.parts[2])),
          h("span", { class: "quiet" }, s.__sls__ ? " in " + s.__sls__ : "", typeof s.duration === "number" ? " " + s.duration.toFixed(0) + " ms" : "")),
        s.comment && h("pre", { class: "data comment" }, plain(s.comment)),
        changedBy(s) && changesOf(s.changes));
    }), all.length > 1000 && h("p", { class: "cut" }, (all.length - 1000) + " more states are not shown"));
}

// changesOf shows changes: from old to new where they have both, and differences of files.
function changesOf(c) {
  const rows = [];
  for (const [k, x] of Object.entries(c)) {
    if (x !== null && typeof x === "object" && "old" in x && "new" in x && typeof x.old !== "object" && typeof x.new !== "object") {
      rows.push(h("li", {}, h("span", { class: "key data" }, k + ": "), h("del", { class: "data" }, plain(x.old) || "none"), " \u2192 ", h("ins", { class: "data" }, plain(x.new) || "none")));
    } else {
      rows.push(h("li", {}, h("span", { class: "key data" }, k + ": "), tree(x)));
    }
    if (rows.length === 200) break;
  }
  return h("ul", { class: "tree changes" }, rows);
}

// result shows a return in the form that fits it.
export function result(v) {
  return isStates(v) ? states(v) : tree(v);
}
