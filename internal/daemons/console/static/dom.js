// Elements are made by functions, never from strings of HTML. Text of any origin becomes
// text nodes, by way of visible().

import { visible, choice, choose } from "./text.js";

// h makes an element. props are attributes; on: listeners; children: elements, strings
// or numbers, in lists as well. null and false are left out.
export function h(name, props, ...children) {
  const e = name === "svg" || name === "rect" ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [k, v] of Object.entries(props || {})) {
    if (v === null || v === undefined || v === false) continue;
    if (k === "on") for (const [type, fn] of Object.entries(v)) e.addEventListener(type, fn);
    else if (k === "value" || k === "checked" || k === "disabled") e[k] = v;
    else e.setAttribute(k, v === true ? "" : String(v));
  }
  add(e, children);
  return e;
}

export function add(e, children) {
  for (const c of children.flat(9)) {
    if (c === null || c === undefined || c === false) continue;
    e.append(c instanceof Node ? c : document.createTextNode(visible(String(c))));
  }
  return e;
}

export function fill(e, ...children) {
  e.replaceChildren();
  return add(e, children);
}

// Icons, so that colour is never alone.
const icons = { ok: "\u2713", changed: "\u0394", failed: "\u2717", waiting: "\u2026", offline: "\u25CB" };

export function status(kind, text) {
  return h("span", { class: "status " + kind }, icons[kind] + " " + text);
}

// states of minions and masters, and how they look.
const kinds = { up: "ok", down: "offline", elsewhere: "waiting" };
const words = { up: "connected", down: "not connected", elsewhere: "at another master" };

export function stateOf(state) {
  return status(kinds[state] || "offline", words[state] || state);
}

// severities of the last runs of states of a minion, the worst first.
const severityKinds = { failed: "failed", not_returned: "waiting", drift: "waiting", changed: "changed", clean: "ok", unknown: "offline" };
export const severities = Object.keys(severityKinds);
const severityWords = { not_returned: "not returned", clean: "in order" };

export function severityOf(s) {
  return s ? status(severityKinds[s] || "offline", severityWords[s] || s) : "";
}

// say tells users of screen readers.
export function say(text) {
  document.getElementById("live").textContent = visible(text);
}

// ask shows a dialog and resolves to whether it was confirmed. no is the text of the button that does not.
export function ask(title, body, action, danger, no) {
  return new Promise((done) => {
    const end = (ok) => { box.close(); box.remove(); done(ok); };
    const box = h("dialog", { "aria-label": title, on: { cancel: (e) => { e.preventDefault(); end(false); } } },
      h("h2", {}, title), body,
      h("div", { class: "fields" },
        action && h("button", { type: "button", class: "cancel", on: { click: () => end(false) } }, no || "Cancel"),
        h("button", { type: "button", class: danger ? "danger confirm" : "main confirm", on: { click: () => end(true) } }, action || "Close")));
    document.body.append(box);
    box.showModal();
  });
}

// table makes a table whose rows can be walked through by j and k.
export function table(label, heads, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label + ", table" }, h("table", { "aria-label": label },
    h("thead", {}, h("tr", {}, heads.map((t) => h("th", { scope: "col", class: t.number ? "number" : null }, t.text || t)))),
    h("tbody", {}, rows)));
}

const maxColumns = 12; // console.css has a rule for each

// tools makes the column chooser of a table, and the button that saves its rows as CSV. find
// returns the table, which may be made again: apply is then called for the new one. off are the
// columns that are hidden until the user chooses.
export function tools(label, heads, find, off) {
  const key = "columns " + label, none = ",";
  const hidden = new Set((choice(key) || (off || []).join(",")).split(",").filter(Boolean));
  const apply = () => {
    const t = find();
    if (!t) return;
    for (let i = 1; i <= maxColumns; i++) t.classList.toggle("hide-" + i, hidden.has(heads[i - 1]));
  };
  const boxes = heads.slice(1).map((name) => h("label", { class: "check" }, h("input", { type: "checkbox", checked: !hidden.has(name), "data-column": name, on: { change: (e) => {
    if (e.target.checked) hidden.delete(name);
    else hidden.add(name);
    choose(key, [...hidden].join(",") || none);
    apply();
  } } }), " " + name));
  const bar = h("div", { class: "tools" }, h("details", { class: "columns" }, h("summary", {}, "Columns"), boxes),
    h("button", { type: "button", class: "csv", on: { click: () => { const t = find(); if (t) save(label.toLowerCase() + ".csv", "text/csv", csv(t)); } } }, "Save as CSV"));
  // hide sets the names of the hidden columns, separated by commas; hidden returns them.
  return { bar, apply, hidden: () => [...hidden].join(","), hide: (names) => choose(key, names || none) };
}

// csv writes the visible cells of a table. A cell that a spreadsheet would take for a formula gets
// an apostrophe: the text may come from a minion.
export function csv(t) {
  const shown = [...t.querySelectorAll("tr")].map((r) => [...r.children].filter((c) => getComputedStyle(c).display !== "none").map((c) => c.innerText.trim()));
  const cell = (s) => '"' + (/^[=+\-@\t\r]/.test(s) ? "'" + s : s).replaceAll('"', '""') + '"';
  return shown.map((r) => r.map(cell).join(",")).join("\r\n") + "\r\n";
}

// save offers a text as a file.
export function save(name, type, text) {
  const a = h("a", { href: URL.createObjectURL(new Blob([text], { type: type + ";charset=utf-8" })), download: name });
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}

// row makes a row of a table from the contents of its cells.
export function row(cells, props) {
  return h("tr", props, cells.map((c) => (c instanceof HTMLTableCellElement ? c : h("td", {}, c))));
}
