// The schedules of minions, as far as the master knows them from pillars and returns.

import { h, fill, table, row, status, ask, tools } from "./dom.js";
import { read, write } from "./api.js";
import { savedSchedules } from "./savedschedules.js";
import { address, date, plain } from "./text.js";

const heads = ["Minion", "Name", "Function", "When", "Last run", "Next run", "From", "Actions"];
const pageSize = 200;

// ruleOf tells when an entry runs.
const ruleOf = (s) => [s.every && "every " + s.every + " s", s.cron && "cron " + plain(s.cron), s.when && "at " + plain(s.when), s.once && "once at " + plain(s.once), s.range && "in " + plain(s.range)].filter(Boolean).join(", ");
const stateOf = (s) => (s.problem ? status("failed", s.problem) : s.enabled === false ? status("offline", "disabled") : ruleOf(s));
const lastOf = (s) => (s.last ? h("a", { href: "#/jobs/" + address(s.last.jid) }, plain(s.last.time)) : "");
const nextOf = (s) => (s.next ? date(s.next) || plain(s.next) : "");

// scheduleRows is the table of the entries of one minion.
export function scheduleRows(rows) {
  return table("Its schedule", ["Name", "Function", "When", "Last run", "Next run", "From"], rows.map((s) => row([h("span", { class: "data" }, s.name), h("span", { class: "data" }, s.fun), stateOf(s), lastOf(s), nextOf(s), s.source], { "data-name": s.name })));
}

export function schedules(main, { query, user }) {
  const list = h("div", { id: "list" }), error = h("p", { class: "error", role: "alert" }), summary = h("p", { class: "quiet", role: "status" }), pager = h("div", { class: "fields" });
  const search = h("input", { class: "filter", id: "f-search", value: query.get("search") || "" }), minion = h("input", { id: "f-minion", value: query.get("minion") || "" });
  const columns = tools("Schedules", heads, () => list.querySelector("table"));
  let over = false, asked = 0, typing = null, offset = 0;
  const start = async (s) => {
    if (!await ask("Run now", h("p", {}, "Run ", h("strong", { class: "data" }, s.name), " on ", h("strong", { class: "data" }, s.minion), " now?"), "Run")) return;
    try {
      location.hash = "#/jobs/" + address((await write("schedules", { minion: s.minion, name: s.name })).jid);
    } catch (e) {
      if (!over) fill(error, e.message);
    }
  };
  const load = async () => {
    const n = ++asked;
    const q = new URLSearchParams({ limit: String(pageSize), offset: String(offset) });
    if (search.value) q.set("search", search.value);
    if (minion.value) q.set("minion", minion.value);
    try {
      const d = await read("schedules?" + q);
      if (over || n !== asked) return;
      fill(error);
      fill(summary, d.matched + " entries. The pillars of " + d.pillar_known + " of " + d.minions + " minions are known; entries of a minion's own configuration are seen only when they have run.");
      fill(list, d.rows.length === 0 ? h("p", { class: "quiet" }, "No schedule is known.") : table("Schedules", heads, d.rows.map((s) => row([
        h("a", { href: "#/minions/" + address(s.minion) }, s.minion), h("span", { class: "data" }, s.name), h("span", { class: "data" }, s.fun),
        stateOf(s), lastOf(s), nextOf(s), s.source, user.commands && s.source === "pillar" && !s.problem ? h("button", { type: "button", class: "now", "aria-label": "Run " + s.name + " on " + s.minion + " now", on: { click: () => start(s) } }, "Run now") : ""],
      { "data-name": s.name, "data-minion": s.minion }))));
      columns.apply();
      const page = (text, to, off) => h("button", { type: "button", disabled: off, on: { click: () => { offset = to; load(); } } }, text);
      fill(pager, d.matched > pageSize && [page("Previous", Math.max(0, d.offset - pageSize), d.offset === 0), page("Next", d.offset + pageSize, d.offset + d.rows.length >= d.matched)]);
    } catch (e) {
      if (!over && n === asked) fill(error, e.message);
    }
  };
  const later = () => { clearTimeout(typing); offset = 0; typing = setTimeout(load, 300); };
  for (const f of [search, minion]) f.addEventListener("input", later);
  const saved = savedSchedules(user);
  fill(main, h("h1", {}, "Schedules"), saved && [saved.box, h("h2", {}, "Schedules of minions")], error, h("div", { class: "fields" }, h("div", { class: "grow" }, h("label", { for: "f-search" }, "Part of the name or function"), search),
    h("div", {}, h("label", { for: "f-minion" }, "Minion"), minion), columns.bar), summary, list, pager);
  load();
  return () => { over = true; clearTimeout(typing); if (saved) saved.end(); };
}
