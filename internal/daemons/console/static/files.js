// The files that the master serves, and compiled pillars; read only.

import { h, fill, table, row } from "./dom.js";
import { read } from "./api.js";
import { tree } from "./result.js";
import { address } from "./text.js";

const pageSize = 200;

export function files(main, { query, user }) {
  const list = h("div", { id: "list" }), one = h("div", { id: "file" }), error = h("p", { class: "error", role: "alert" }), pager = h("div", { class: "fields" }), revisions = h("div", {});
  const env = h("select", { id: "f-env" }, h("option", { value: query.get("saltenv") || "base" }, query.get("saltenv") || "base"));
  const search = h("input", { class: "filter", id: "f-search", value: query.get("search") || "" });
  let over = false, asked = 0, typing = null, offset = 0;
  const show = async (path) => {
    fill(one, h("p", { class: "quiet" }, "Reading " + path));
    try {
      const d = await read("files?" + new URLSearchParams({ saltenv: env.value, path }));
      if (over) return;
      fill(one, h("section", { class: "card", "aria-label": "File" }, h("h2", { class: "data", tabindex: "-1" }, "salt://" + d.path), h("p", { class: "quiet data" }, d.hash + (typeof d.size === "number" ? ", " + d.size + " bytes" : "")),
        typeof d.text === "string" ? h("pre", { class: "data", id: "content", tabindex: "0" }, d.text) : h("p", { class: "cut" }, d.binary ? "The file is no text." : "The file is larger than the console shows.")));
      one.querySelector("h2").focus();
    } catch (e) {
      if (!over) fill(one, h("p", { class: "error" }, e.message));
    }
  };
  const load = async () => {
    const n = ++asked;
    try {
      const d = await read("files?" + new URLSearchParams({ saltenv: env.value, search: search.value, limit: String(pageSize), offset: String(offset) }));
      if (over || n !== asked) return;
      fill(error);
      const now = env.value;
      fill(env, (d.envs.includes(now) ? d.envs : [now, ...d.envs]).map((e) => h("option", { value: e }, e)));
      env.value = now;
      const masters = Object.entries(d.revisions || {});
      fill(revisions, masters.length > 0 && h("p", {}, new Set(masters.map(([, r]) => r)).size === 1 ? "All masters serve the same files." : "The masters differ: " + masters.map(([m, r]) => m + " " + r.slice(0, 12)).join(", ")));
      fill(list, d.rows.length === 0 ? h("p", { class: "quiet" }, "No file matches.") : table("Files", ["Path", "Hash"], d.rows.map((f) => row([
        h("button", { type: "button", class: "link data", on: { click: () => show(f.path) } }, f.path), h("span", { class: "data quiet" }, (f.hash || "").slice(0, 16))], { "data-path": f.path }))));
      const page = (text, to, off) => h("button", { type: "button", disabled: off, on: { click: () => { offset = to; load(); } } }, text);
      fill(pager, d.matched > pageSize && [page("Previous", Math.max(0, d.offset - pageSize), d.offset === 0), page("Next", d.offset + pageSize, d.offset + d.rows.length >= d.matched)]);
    } catch (e) {
      if (!over && n === asked) fill(error, e.message);
    }
  };
  search.addEventListener("input", () => { clearTimeout(typing); offset = 0; typing = setTimeout(load, 300); });
  env.addEventListener("change", () => { offset = 0; load(); });
  fill(main, h("h1", {}, "Files and pillar"), error, h("h2", {}, "Files"), h("div", { class: "fields" }, h("div", {}, h("label", { for: "f-env" }, "Environment"), env), h("div", { class: "grow" }, h("label", { for: "f-search" }, "Part of the path"), search)),
    revisions, list, pager, one, user.may["runner.pillar.show_pillar"] && [h("h2", {}, "Pillar of a minion"), pillarOf("")]);
  load();
  return () => { over = true; clearTimeout(typing); };
}

// pillarOf is a form that shows the compiled pillar of a minion. The master compiles it for each
// request, and records that in its audit log.
export function pillarOf(id) {
  const place = h("div", { class: "pillar" }), minion = h("input", { id: "p-minion", value: id, required: true, spellcheck: "false", autocapitalize: "none" });
  const show = async (e) => {
    e.preventDefault();
    try {
      const d = await read("pillar/" + address(minion.value.trim()));
      fill(place, h("p", { class: "quiet" }, "The path of a key is its title. Values that look like secrets are hidden."), Object.keys(d.pillar || {}).length > 0 ? tree(d.pillar, { masked: true, paths: true }) : h("p", { class: "quiet" }, "The pillar is empty."));
    } catch (x) {
      fill(place, h("p", { class: "error", role: "alert" }, x.message));
    }
  };
  return h("form", { class: "card", id: "pillar", on: { submit: show } }, h("div", { class: "fields" }, id ? null : h("div", {}, h("label", { for: "p-minion" }, "Minion"), minion), h("button", { type: "submit", id: "show-pillar" }, "Show the pillar")), place);
}
