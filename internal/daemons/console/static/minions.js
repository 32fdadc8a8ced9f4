import { h, fill, table, row, stateOf, severityOf, severities, status, tools } from "./dom.js";
import { watch } from "./store.js";
import { look } from "./api.js";
import { address, date, plain } from "./text.js";
import { viewBox } from "./saved.js";
import { handOver } from "./run.js";

const pageSize = 200;
const maxPicked = 200; // minions that a job is offered for: their ids are its target
const heads = ["Minion", "State", "Masters", "Standby", "Last states", "Operating system", "Version"];

// minions lists the accepted minions, filtered by the master.
export function minions(main, { query, user }) {
  const field = (name, label) => h("input", { class: name === "search" ? "filter" : null, id: "f-" + name, "aria-label": label, value: query.get(name) || "" });
  const search = field("search", "Search");
  const choices = (name) => h("select", { id: "f-" + name }, h("option", { value: query.get(name) || "" }, query.get(name) || "all"));
  const selects = { state: choices("state"), master: choices("master"), version: choices("version"), severity: choices("severity") };
  const summary = h("p", { class: "quiet", role: "status", id: "summary" }), list = h("div", { id: "list" }), error = h("p", { class: "error" });
  const pager = h("div", { class: "fields" }), columns = tools("Minions", heads, () => list.querySelector("table"));
  const picked = new Set(), acts = h("div", { class: "fields bulk", id: "acts" });
  let offset = Number(query.get("offset")) || 0, asked = 0, over = false, shown = [];

  // The user selects rows, and runs a function on their minions: the form of the page Run has the rest.
  const pick = (ids, on) => {
    for (const id of ids) {
      if (on) picked.add(id);
      else picked.delete(id);
    }
    const go = (fun, args) => { handOver("", { tgt: [...picked].sort(), tgt_type: "list", fun, arg: args }); location.hash = "#/run?job="; };
    const button = (id, text, fun, args) => h("button", { type: "button", id, disabled: picked.size === 0 || picked.size > maxPicked, on: { click: () => go(fun, args) } }, text);
    fill(acts, user.commands && shown.length > 0 && [
      h("label", { class: "check" }, h("input", { type: "checkbox", id: "pick-all", checked: shown.every((i) => picked.has(i)), on: { change: (e) => { pick(shown, e.target.checked); for (const b of list.querySelectorAll(".pick")) b.checked = e.target.checked; } } }), " All " + shown.length + " shown"),
      h("span", { class: "quiet", id: "picked", role: "status" }, picked.size > maxPicked ? picked.size + " selected: use a target for more than " + maxPicked : picked.size > 0 && picked.size + " selected"),
      button("act-run", "Run a function", "", []), button("act-test", "Test the highstate", "state.highstate", ["test=True"]), button("act-refresh", "Refresh the pillar", "saltutil.refresh_pillar", [])]);
  };
  const filters = () => ({ search: search.value, state: selects.state.value, master: selects.master.value, version: selects.version.value, severity: selects.severity.value });
  const load = async () => {
    const n = ++asked;
    let d;
    try {
      d = await look("minions", { ...filters(), offset, limit: pageSize });
    } catch (e) {
      if (!over) fill(error, e.message);
      return;
    }
    if (n !== asked || over) return; // a later question was asked
    fill(error);
    for (const [name, select] of Object.entries(selects)) {
      if (document.activeElement === select) continue;
      const now = select.value;
      const counts = Object.entries(d.counts[name] || {}).filter(([v]) => v !== "");
      for (const v of name === "state" ? ["up", "down", "elsewhere"] : name === "severity" ? severities : [now]) if (v && !counts.some(([c]) => c === v)) counts.push([v, 0]);
      fill(select, h("option", { value: "" }, "all"), counts.map(([v, c]) => h("option", { value: v }, v + " (" + c + ")")));
      select.value = now;
    }
    fill(summary, d.matched + " of " + d.accepted + " minions");
    fill(list, d.rows.length === 0 ? h("p", { class: "quiet" }, "No accepted minion matches.") :
      table("Minions", heads, d.rows.map((m) => row([
        [user.commands && [h("input", { type: "checkbox", class: "pick", checked: picked.has(m.id), "aria-label": "Select " + m.id, on: { change: (e) => pick([m.id], e.target.checked) } }), " "], h("a", { href: "#/minions/" + address(m.id) }, m.id)], stateOf(m.state), m.by.join(", "), (m.standby || []).join(", "), severityOf(m.severity), m.os,
        m.version + (m.brine ? " (Brine " + m.brine + ")" : "")], { "data-id": m.id }))));
    columns.apply();
    shown = d.rows.map((m) => m.id);
    if (!acts.contains(document.activeElement)) pick([], true);
    const page = (text, to, off) => h("button", { type: "button", disabled: off, on: { click: () => { offset = to; load(); } } }, text);
    fill(pager, d.matched > pageSize && [page("Previous", Math.max(0, d.offset - pageSize), d.offset === 0),
      page("Next", d.offset + pageSize, d.offset + d.rows.length >= d.matched), h("span", { class: "quiet" }, (d.offset + 1) + " to " + (d.offset + d.rows.length))]);
  };
  const filter = () => {
    offset = 0;
    const q = new URLSearchParams(Object.entries(filters()).filter(([, v]) => v));
    history.replaceState(null, "", "#/minions" + (q.size ? "?" + q : ""));
    load();
  };
  let typing;
  search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(filter, 250); });
  for (const s of Object.values(selects)) s.addEventListener("change", filter);
  fill(main, h("h1", {}, "Minions"), error, h("div", { class: "fields" },
    h("div", { class: "grow" }, h("label", { for: "f-search" }, "Id or operating system"), search),
    Object.entries(selects).map(([name, s]) => h("div", {}, h("label", { for: "f-" + name }, name[0].toUpperCase() + name.slice(1)), s)), columns.bar), viewBox("minions", user, filters, columns), summary, acts, list, pager);
  load();
  let due;
  const end = watch("topology", () => { clearTimeout(due); due = setTimeout(load, 300); });
  return () => { over = true; clearTimeout(due); clearTimeout(typing); end(); };
}

const outcomes = { failed: ["failed", "failed"], drift: ["waiting", "would change"], changed: ["changed", "changed"] };

// runsOf shows the last run of states that applied something, and the last one with test=True.
export function runsOf(d) {
  if (!d || (!d.applied && !d.tested)) return h("p", { class: "quiet" }, "The master knows of no run of states of this minion.");
  const one = (title, r) => r && h("div", { class: "card" }, h("h3", {}, title), h("p", {}, h("a", { href: "#/jobs/" + address(r.jid) }, date(r.time) || r.jid), " ", h("span", { class: "data" }, r.fun + " " + (r.mods || []).join(","))),
    h("p", {}, [["failed", r.failed, "failed"], ["waiting", r.would_change, "would change"], ["changed", r.changed, "changed"], ["ok", r.ok, "in order"]].filter(([, n]) => n > 0).map(([k, n, w]) => [status(k, n + " " + w), " "]), r.broken && status("failed", "ended before any state")),
    (r.states || []).length > 0 && h("ul", { class: "tree" }, r.states.map((s) => h("li", {}, status((outcomes[s.outcome] || ["waiting"])[0], (outcomes[s.outcome] || ["", s.outcome])[1]), " ",
      h("a", { class: "data", href: "#/states?search=" + address(plain(s.state)) + (s.outcome === "changed" ? "&outcome=changed" : "") }, s.fun + ": " + s.state), s.sls && h("span", { class: "quiet" }, " in " + s.sls)))),
    (r.slowest || []).length > 0 && h("p", { class: "quiet" }, "Slowest: " + r.slowest.slice(0, 5).map((s) => s.state + " " + s.ms.toFixed(0) + " ms").join(", ")));
  return [h("p", {}, severityOf(d.severity), d.waiting_for && " A newer run has not returned yet."), one("Applied", d.applied), one("Tested", d.tested)];
}
