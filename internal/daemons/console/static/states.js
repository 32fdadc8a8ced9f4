// The last runs of states of all minions: what failed, what drifted, and what changed, equal changes
// together. The master keeps it; nothing is sent to minions.

import { h, fill, status, severityOf, severities, table, row } from "./dom.js";
import { read } from "./api.js";
import { address, choice, choose, plain } from "./text.js";
import { changesOf } from "./result.js";
import { runs } from "./compare.js";

const kinds = { failed: "failed", drift: "waiting", changed: "changed" };
const words = { failed: "failed", drift: "would change", changed: "changed" };
const pageSize = 100;

export function statesPage(main, { query, user }) {
  const summary = h("p", { class: "words", id: "severities" }), list = h("div", { id: "list" }), slow = h("div", { id: "slowest" }), error = h("p", { class: "error", role: "alert" }), pager = h("div", { class: "fields" });
  const search = h("input", { class: "filter", id: "f-search", value: query.get("search") || "" });
  const outcome = h("select", { id: "f-outcome" }, [["", "failed and drift"], ["failed", "failed"], ["drift", "drift"], ["changed", "changed"]].map(([v, t]) => h("option", { value: v }, t)));
  outcome.value = query.get("outcome") || "";
  const split = h("input", { type: "checkbox", id: "split", checked: choice("split") === "1" });
  let over = false, asked = 0, typing = null, offset = 0, last = null;

  const people = (g) => [g.minions.slice(0, 20).map((id, i) => [i > 0 && ", ", h("a", { href: "#/minions/" + address(id) }, id)]), g.count > 20 && " and " + (g.count - 20) + " more"];
  const group = (g) => h("div", { class: "group", "data-outcome": g.outcome }, h("p", {}, status(kinds[g.outcome] || "waiting", words[g.outcome] || g.outcome), " on " + g.count + (g.count === 1 ? " minion: " : " minions: "), people(g)),
    g.comment && h("pre", { class: "data comment" }, plain(g.comment)), g.changes && Object.keys(g.changes).length > 0 && changesOf(g.changes, split.checked),
    g.cut && h("p", { class: "cut" }, "The change is larger than the master keeps."));
  const draw = () => {
    const d = last;
    fill(summary, severities.filter((s) => d.severities[s]).map((s) => h("a", { href: "#/minions?severity=" + s }, severityOf(s), " " + d.severities[s])));
    fill(list, d.rows.length === 0 ? h("p", { class: "quiet" }, d.minions === (d.severities.unknown || 0) ? "The master knows of no run of states. Run state.apply, or schedule it with test=True to see drift." : "No state matches.") :
      d.rows.map((s) => h("details", { class: "card state", "data-state": s.state, open: d.rows.length <= 5 }, h("summary", {}, ["failed", "drift", "changed"].filter((k) => s[k] > 0).map((k) => [status(kinds[k], s[k] + " " + words[k]), " "]),
        h("span", { class: "data" }, s.fun + ": " + s.state), h("span", { class: "quiet" }, s.sls ? " in " + s.sls : "")), s.groups.map(group), s.more_groups > 0 && h("p", { class: "cut" }, s.more_groups + " more kinds of change are not shown"))));
    fill(slow, d.slowest.length > 0 && [h("h2", {}, "Slowest states"), table("Slowest states", ["State", "SLS", { text: "Longest (ms)", number: true }, { text: "Mean (ms)", number: true }, "Minion"], d.slowest.slice(0, 20).map((s) => row([
      h("span", { class: "data" }, s.fun + ": " + s.state), s.sls, h("td", { class: "number" }, s.ms.toFixed(0)), h("td", { class: "number" }, s.mean_ms.toFixed(0)), h("a", { href: "#/minions/" + address(s.minion) }, s.minion)])))]);
    const page = (text, to, off) => h("button", { type: "button", disabled: off, on: { click: () => { offset = to; load(); } } }, text);
    fill(pager, d.matched > pageSize && [page("Previous", Math.max(0, d.offset - pageSize), d.offset === 0), page("Next", d.offset + pageSize, d.offset + d.rows.length >= d.matched)]);
  };
  const load = async () => {
    const n = ++asked;
    const q = new URLSearchParams({ limit: String(pageSize), offset: String(offset) });
    if (search.value) q.set("search", search.value);
    if (outcome.value) q.set("outcome", outcome.value);
    try {
      const d = await read("states?" + q);
      if (over || n !== asked) return;
      last = d;
      fill(error);
      draw();
    } catch (e) {
      if (!over && n === asked) fill(error, e.message);
    }
  };
  const filter = () => {
    offset = 0;
    const q = new URLSearchParams([["search", search.value], ["outcome", outcome.value]].filter(([, v]) => v));
    history.replaceState(null, "", "#/states" + (q.size ? "?" + q : ""));
    load();
  };
  search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(filter, 300); });
  outcome.addEventListener("change", filter);
  split.addEventListener("change", () => { choose("split", split.checked ? "1" : ""); if (last) draw(); });
  fill(main, h("h1", {}, "States"), h("p", { class: "quiet" }, "The last runs of states. Drift is what a run with test=True would change."), error, summary,
    h("div", { class: "fields" }, h("div", { class: "grow" }, h("label", { for: "f-search" }, "Part of the state, function or SLS file"), search), h("div", {}, h("label", { for: "f-outcome" }, "Outcome"), outcome),
      h("label", { class: "check" }, split, " Old and new side by side"), h("button", { type: "button", id: "again", on: { click: load } }, "Read again")), user.may["runner.fleet.jobs"] && user.may["runner.fleet.compare"] && runs(), list, pager, slow);
  load();
  return () => { over = true; clearTimeout(typing); };
}
