// The command palette: go to a page, a minion or a job, or run a function.

import { h, fill } from "./dom.js";
import { look } from "./api.js";
import { store } from "./store.js";
import { address } from "./text.js";

const maxShown = 12;
let functions = null; // names, read once

// palette opens the palette. pages are {name: title} of the pages that the user may see.
export function palette(pages, user) {
  if (document.querySelector("dialog[open]")) return;
  const input = h("input", { id: "palette-input", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-autocomplete": "list",
    "aria-label": "Go to a page, a minion, a job or a function", spellcheck: "false", autocapitalize: "none", placeholder: "Page, minion, job id or function" });
  const list = h("ul", { id: "palette-list", role: "listbox", "aria-label": "Places" });
  const box = h("dialog", { id: "palette", "aria-label": "Go to" }, input, list);
  let shown = [], at = 0;
  const end = () => { box.close(); box.remove(); };
  const go = (i) => { if (shown[i]) { end(); location.hash = shown[i].hash; } };
  const draw = () => {
    const text = input.value.trim(), low = text.toLowerCase();
    const has = (s) => s.toLowerCase().includes(low);
    shown = Object.entries(pages).filter(([, title]) => has(title)).map(([name, title]) => ({ kind: "page", text: title, hash: "#/" + name }));
    if (/^\d{20}$/.test(text)) shown.unshift({ kind: "job", text, hash: "#/jobs/" + text });
    if (text) {
      let n = 0;
      for (const id of store.minions.keys()) {
        if (!has(id)) continue;
        shown.push({ kind: "minion", text: id, hash: "#/minions/" + address(id) });
        if (++n === maxShown) break;
      }
      if (user.commands) {
        for (const f of (functions || []).filter(has).slice(0, maxShown)) shown.push({ kind: "run", text: f, hash: "#/run?fun=" + address(f) });
      }
    }
    shown = shown.slice(0, maxShown);
    at = Math.min(at, Math.max(shown.length - 1, 0));
    fill(list, shown.map((s, i) => h("li", { role: "option", id: "place-" + i, "aria-selected": i === at ? "true" : "false", on: { click: () => go(i) } },
      h("span", { class: "quiet" }, s.kind + " "), h("span", { class: s.kind === "page" ? null : "data" }, s.text))),
      shown.length === 0 && h("li", { role: "option", "aria-selected": "false", "aria-disabled": "true", class: "quiet" }, "Nothing has this name."));
    if (shown.length > 0) input.setAttribute("aria-activedescendant", "place-" + at);
    else input.removeAttribute("aria-activedescendant");
  };
  input.addEventListener("input", () => { at = 0; draw(); });
  input.addEventListener("keydown", (e) => {
    if (e.key === "ArrowDown" || e.key === "ArrowUp") {
      at = (at + (e.key === "ArrowDown" ? 1 : shown.length - 1)) % Math.max(shown.length, 1);
      draw();
    } else if (e.key === "Enter") {
      go(at);
    } else return;
    e.preventDefault();
  });
  box.addEventListener("cancel", (e) => { e.preventDefault(); end(); });
  box.addEventListener("click", (e) => { if (e.target === box) end(); });
  document.body.append(box);
  box.showModal();
  draw();
  if (!functions && user.may["runner.fleet.functions"]) {
    look("functions").then((all) => { functions = all; if (box.open) draw(); }, () => {});
  }
}

// forget drops what belonged to a user.
export function forget() { functions = null; }
