// The builder of targets: the words of a compound target as chips, and a form that adds one. The
// text field stays the target; both change each other.

import { h, fill } from "./dom.js";

const kinds = [["glob", "id", "", "web*"], ["grain", "grain", "G@", "os:Debian"], ["pillar", "pillar", "I@", "role:web"], ["list", "list of ids", "L@", "web1,web2"],
  ["nodegroup", "node group", "N@", "group1"], ["ipcidr", "network", "S@", "10.0.0.0/8"], ["pcre", "id (pattern)", "E@", "web\\d+"],
  ["grain_pcre", "grain (pattern)", "P@", "os:(Debian|Ubuntu)"]];
const operators = ["and", "or", "not", "(", ")"];

// parts splits a compound target into its words.
export const parts = (text) => text.trim().split(/\s+/).filter(Boolean);

// compound writes a target of another type as a word of a compound one.
export function compound(type, tgt) {
  if (type === "compound" || type === "glob") return tgt.trim();
  const k = kinds.find(([name]) => name === type);
  return k && tgt.trim() ? k[2] + tgt.trim() : tgt.trim();
}

// joined adds a word. Two terms need an operator between them.
export function joined(words, word) {
  const last = words[words.length - 1];
  const open = last === undefined || last === "(" || last === "and" || last === "or" || last === "not";
  if ((word === "and" || word === "or" || word === ")") && open) return words;
  if (!open && word !== "and" && word !== "or" && word !== ")") return [...words, "and", word];
  return [...words, word];
}

// without removes a word, and the operators that then have nothing to join.
export function without(words, i) {
  const left = words.filter((_, k) => k !== i);
  const is = (w, list) => list.includes(w);
  for (let changed = true; changed;) {
    changed = false;
    for (let k = 0; k < left.length; k++) {
      const w = left[k], next = left[k + 1], prev = left[k - 1];
      const bad = (is(w, ["and", "or"]) && (prev === undefined || is(prev, ["and", "or", "not", "("]) || next === undefined || is(next, ["and", "or", ")"]))) ||
        (w === "not" && (next === undefined || is(next, ["and", "or", ")"]))) || (w === "(" && next === ")");
      if (!bad) continue;
      left.splice(k, w === "(" ? 2 : 1);
      changed = true;
      break;
    }
  }
  // Terms that stand side by side now need an operator again.
  return left.reduce((out, w) => joined(out, w), []);
}

// builder makes the chips of the fields type and tgt; change is called after the builder has
// changed them. The returned draw shows what has been typed.
export function builder(type, tgt, change) {
  const list = h("div", { class: "words", id: "chips", role: "group", "aria-label": "Parts of the target" });
  const kind = h("select", { id: "b-kind" }, kinds.map(([name, title]) => h("option", { value: name }, title)));
  const text = h("input", { id: "b-value", spellcheck: "false", autocapitalize: "none", placeholder: kinds[0][3] });
  const set = (words) => {
    const simple = words.length === 1 && !/^[A-Z]!?@/.test(words[0]);
    tgt.value = words.join(" ");
    type.value = simple ? "glob" : "compound";
    draw();
    change();
  };
  const now = () => parts(compound(type.value, tgt.value));
  const add = (word) => set(joined(now(), word));
  const draw = () => fill(list, now().map((w, i) => h("button", { type: "button", class: "chip" + (operators.includes(w) ? " operator" : ""), "aria-label": "Remove " + w,
    on: { click: () => { set(without(now(), i)); (list.children[Math.min(i, list.children.length - 1)] || text).focus(); } } }, w, h("span", { "aria-hidden": "true" }, " \u00d7"))));
  const put = () => {
    const value = text.value.trim().replace(/\s+/g, "");
    if (!value) { text.focus(); return; }
    text.value = "";
    // The first word replaces the target that the page begins with.
    const word = kinds.find(([name]) => name === kind.value)[2] + value;
    set(now().length === 1 && now()[0] === "*" ? [word] : joined(now(), word));
    text.focus();
  };
  kind.addEventListener("change", () => { text.placeholder = kinds.find(([name]) => name === kind.value)[3]; });
  text.addEventListener("keydown", (e) => { if (e.key === "Enter") { e.preventDefault(); put(); } });
  draw();
  const box = h("details", { id: "builder" }, h("summary", {}, "Build the target"), list,
    h("div", { class: "fields" }, h("div", {}, h("label", { for: "b-kind" }, "By"), kind), h("div", { class: "grow" }, h("label", { for: "b-value" }, "Value"), text),
      h("button", { type: "button", id: "b-add", on: { click: put } }, "Add"),
      h("span", { class: "words", role: "group", "aria-label": "Operators" }, operators.map((o) => h("button", { type: "button", "data-operator": o, on: { click: () => add(o) } }, o)))));
  return { box, draw };
}
