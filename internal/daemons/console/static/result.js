// What minions return, as elements.

import { h, ask, say, status } from "./dom.js";
import { plain, visible } from "./text.js";

const maxNodes = 3000; // elements of one value

// tree shows a value. Maps and lists below the first level can be closed. With masked the values of
// keys that look like secrets are shown only when the user asks. The title of a key is its path, as
// pillar.get and grains.get take it; with paths a press on a value without parts copies it.
export function tree(v, { masked = false, paths = false } = {}) {
  const room = { n: maxNodes, masked, paths };
  return node(v, room, 0, "");
}

const secret = /passw|passphrase|secret|token|private|credential|api_?key|(^|_)key$|auth$/i;

// mask hides a value until its button is pressed.
function mask(make, key) {
  const b = h("button", { type: "button", class: "masked", "aria-label": "Show the value of " + key, on: { click: () => b.replaceWith(make()) } }, "\u2022\u2022\u2022 show");
  return b;
}

// copy puts a text on the clipboard. Browsers offer that only to pages by TLS and of this machine; the text is selected in a dialog elsewhere.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied: " + text);
  } catch {
    const field = h("input", { class: "data", id: "copied", readonly: true, value: text, "aria-label": "Path" });
    ask("Path", h("div", {}, field));
    field.select();
  }
}

function node(v, room, depth, path) {
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
    const place = path + (path && ":") + (k === "-" ? i : k);
    const plainKey = h("span", { class: "key data", title: visible(place) }, k === "-" ? "- " : k + ": ");
    const deep = x !== null && typeof x === "object" && Object.keys(x).length > 0;
    const key = room.paths && k !== "-" && !deep ? h("button", { type: "button", class: "key data copy", title: visible("Copy the path " + place), on: { click: () => copy(place) } }, k + ": ") : plainKey;
    if (room.masked && k !== "-" && secret.test(k)) {
      list.append(h("li", {}, key, mask(() => node(x, room, depth + 1, place), k)));
      continue;
    }
    if (deep && k !== "-" && depth < 12) {
      list.append(h("li", {}, h("details", { open: Object.keys(x).length <= 8 }, h("summary", {}, key), node(x, room, depth + 1, place))));
    } else if (depth >= 12) {
      list.append(h("li", {}, key, h("span", { class: "data" }, plain(x).slice(0, 300))));
    } else {
      list.append(h("li", {}, key, node(x, room, depth + 1, place)));
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

// causes finds why states did not run: by name, the states whose comment says that it failed as a requisite.
// Salt puts that into the comment only. A state that failed itself is the cause of those.
function causes(all) {
  const byName = new Map(all.map((s) => [(s.__sls__ || "") + "." + (s.__id__ || s.parts[1]), s]));
  for (const s of all) {
    const found = s.result === false && /^One or more requisite failed: ([^\n]+)/.exec(String(s.comment || ""));
    if (!found) continue;
    s.missed = found[1].split(", ").map((n) => byName.get(n)).filter((c) => c && c !== s);
    for (const c of s.missed) (c.stops = c.stops || []).push(s);
  }
}

// stopped shows the states that did not run because of one, and because of those in turn.
function stopped(s, seen) {
  return h("ul", { class: "tree" }, s.stops.map((x) => {
    const again = seen.has(x);
    seen.add(x);
    return h("li", { class: "data" }, titled(x), !again && x.stops && stopped(x, seen));
  }));
}

const titled = (s) => s.parts[0] + "." + s.parts[3] + ": " + (s.name || s.parts[2]);

// states shows states: failures first, then what would change, what has changed, and the rest. Of the failures
// those come first that are no consequence of others; the consequences are listed below them.
export function states(v) {
  const all = Object.entries(v).map(([k, s]) => ({ parts: k.split("_|-"), ...s, stops: null, missed: null }));
  causes(all);
  const later = (s) => (s.missed && s.missed.length > 0 ? 1 : 0);
  all.sort((a, b) => rank(a) - rank(b) || later(a) - later(b) || (a.__run_num__ || 0) - (b.__run_num__ || 0));
  const total = all.reduce((n, s) => n + (Number(s.duration) || 0), 0);
  const looks = [["failed", "failed"], ["waiting", "would change"], ["changed", "changed"], ["ok", "in order"]];
  return h("div", { class: "states" }, h("p", { class: "quiet" }, all.length + " states, " + (total / 1000).toFixed(2) + " s"),
    all.slice(0, 1000).map((s) => {
      const r = rank(s), [kind, word] = looks[r];
      return h("details", { class: "state-" + kind, open: r < 3 && all.length <= 200 && !later(s) },
        h("summary", {}, status(kind, later(s) ? "did not run" : word), " ", h("span", { class: "data" }, titled(s)),
          h("span", { class: "quiet" }, s.__sls__ ? " in " + s.__sls__ : "", typeof s.duration === "number" ? " " + s.duration.toFixed(0) + " ms" : "")),
        s.comment && h("pre", { class: "data comment" }, plain(s.comment)),
        s.stops && h("div", { class: "stops" }, h("p", { class: "quiet" }, "Did not run because of it:"), stopped(s, new Set([s]))),
        changedBy(s) && changesOf(s.changes));
    }), all.length > 1000 && h("p", { class: "cut" }, (all.length - 1000) + " more states are not shown"));
}

// lines shows a difference of files, as diff -u writes it, in one column or in two.
export function lines(text, split) {
  const all = text.split("\n").slice(0, 2000);
  const kind = (l) => (/^(---|\+\+\+|@@)/.test(l) ? "head" : l[0] === "+" ? "added" : l[0] === "-" ? "removed" : "same");
  if (!split) {
    return h("pre", { class: "data lines" }, all.map((l) => h(kind(l) === "added" ? "ins" : kind(l) === "removed" ? "del" : "span", { class: kind(l) }, l + "\n")));
  }
  const rows = [];
  let old = [], added = [];
  const flush = () => {
    for (let i = 0; i < Math.max(old.length, added.length); i++) rows.push([old[i], added[i]]);
    old = [];
    added = [];
  };
  for (const l of all) {
    if (kind(l) === "removed") old.push(l.slice(1));
    else if (kind(l) === "added") added.push(l.slice(1));
    else { flush(); rows.push(kind(l) === "head" ? [l, l] : [l.slice(1), l.slice(1)]); }
  }
  flush();
  const cell = (t, name, same) => h("td", { class: "data" }, t === undefined ? "" : same ? t : h(name, {}, t));
  return h("table", { class: "split", "aria-label": "Old and new lines" }, h("tbody", {}, rows.map(([a, b]) => h("tr", {}, cell(a, "del", a === b), cell(b, "ins", a === b)))));
}

// changesOf shows changes: from old to new where they have both, and differences of files.
export function changesOf(c, split) {
  const rows = [];
  for (const [k, x] of Object.entries(c)) {
    if (x !== null && typeof x === "object" && "old" in x && "new" in x && typeof x.old !== "object" && typeof x.new !== "object") {
      rows.push(h("li", {}, h("span", { class: "key data" }, k + ": "), h("del", { class: "data" }, plain(x.old) || "none"), " \u2192 ", h("ins", { class: "data" }, plain(x.new) || "none")));
    } else if (k === "diff" && typeof x === "string" && x.includes("\n")) {
      rows.push(h("li", {}, h("span", { class: "key data" }, k + ": "), lines(x, split)));
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
