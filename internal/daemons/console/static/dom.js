// Elements are made by functions, never from strings of HTML. Text of any origin becomes
// text nodes, by way of visible().

import { visible } from "./text.js";

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

// say tells users of screen readers.
export function say(text) {
  document.getElementById("live").textContent = visible(text);
}

// ask shows a dialog and resolves to whether it was confirmed.
export function ask(title, body, action, danger) {
  return new Promise((done) => {
    const end = (ok) => { box.close(); box.remove(); done(ok); };
    const box = h("dialog", { "aria-label": title, on: { cancel: (e) => { e.preventDefault(); end(false); } } },
      h("h2", {}, title), body,
      h("div", { class: "fields" },
        action && h("button", { type: "button", class: "cancel", on: { click: () => end(false) } }, "Cancel"),
        h("button", { type: "button", class: danger ? "danger confirm" : "main confirm", on: { click: () => end(true) } }, action || "Close")));
    document.body.append(box);
    box.showModal();
  });
}

// table makes a table whose rows can be walked through by j and k.
export function table(label, heads, rows) {
  return h("div", { class: "scroll" }, h("table", { "aria-label": label },
    h("thead", {}, h("tr", {}, heads.map((t) => h("th", { scope: "col", class: t.number ? "number" : null }, t.text || t)))),
    h("tbody", {}, rows)));
}

// row makes a row of a table from the contents of its cells.
export function row(cells, props) {
  return h("tr", props, cells.map((c) => (c instanceof HTMLTableCellElement ? c : h("td", {}, c))));
}
