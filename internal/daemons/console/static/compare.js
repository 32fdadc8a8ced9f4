// The comparison of two jobs of the same function, which the master computes.

import { h, fill, status } from "./dom.js";
import { look, read } from "./api.js";
import { difference, readable } from "./matrix.js";
import { address, plain } from "./text.js";

const kinds = { ok: "ok", changed: "changed", would_change: "waiting", failed: "failed", none: "offline" };
const words = { ok: "in order", changed: "changed", would_change: "would change", failed: "failed", none: "did not run" };

const outcome = (o) => status(kinds[o] || "offline", words[o] || plain(o));
const link = (jid, text) => h("a", { href: "#/jobs/" + address(jid) }, text);
const people = (ids, count) => [ids.slice(0, 20).map((id, i) => [i > 0 && ", ", h("a", { href: "#/minions/" + address(id) }, id)]), count > 20 && " and " + (count - 20) + " more"];

// pathOf is the address of a comparison.
export const pathOf = (jid, against) => "#/jobs/" + address(jid) + "?against=" + address(against);

function one(d) {
  const text = (v) => (v === null ? "" : readable(v));
  return h("details", { class: "card difference", "data-from": d.from, "data-to": d.to, open: true }, h("summary", {}, outcome(d.from), " \u2192 ", outcome(d.to), " ",
    d.fun && h("span", { class: "data" }, plain(d.fun) + ": " + plain(d.state)), " on " + d.count + (d.count === 1 ? " minion" : " minions")),
  h("p", {}, people(d.minions, d.count)), d.cut ? h("p", { class: "cut" }, "The values are too large to be compared here.") : difference(text(d.before), text(d.after)));
}

// comparison shows what is different in a job, compared with an earlier one.
export function comparison(jid, against) {
  const box = h("section", { id: "comparison", "aria-label": "Comparison" }, h("p", { class: "quiet" }, "Comparing \u2026"));
  read("jobs/" + address(jid) + "?against=" + address(against)).then((d) => {
    fill(box, h("h2", {}, "Compared with ", link(d.before.jid, d.before.time || d.before.jid)),
      h("p", { role: "status" }, d.same + " of " + d.compared + " minions gave the same result."),
      d.only_after.length > 0 && h("p", { class: "quiet" }, "Only in this job: ", people(d.only_after, d.only_after.length)),
      d.only_before.length > 0 && h("p", { class: "quiet" }, "Only in the earlier job: ", people(d.only_before, d.only_before.length)),
      d.differences.map(one), d.more_differences > 0 && h("p", { class: "cut" }, d.more_differences + " more differences are not shown"));
  }, (e) => fill(box, h("p", { class: "error" }, e.message)));
  return box;
}

// earlier offers the earlier jobs of the same function for a comparison.
export function earlier(jid, fun) {
  const pick = h("select", { id: "against", on: { change: () => { if (pick.value) location.hash = pathOf(jid, pick.value); } } }, h("option", { value: "" }, "\u2026"));
  // The function is a pattern there: its own characters match themselves.
  look("jobs", { fun: fun.replace(/[[\]*?]/g, "?"), before: jid, limit: 30 }).then((d) => {
    for (const j of d.rows) if (j.fun === fun) pick.append(h("option", { value: j.jid }, (j.time || j.jid) + ", " + plain(j.arg || []).slice(0, 60) + " by " + (j.user || "")));
  }, () => {});
  return h("div", {}, h("label", { for: "against" }, "Compare with"), pick);
}

// runs offers two runs of states for a comparison.
export function runs() {
  const choose = (id) => h("select", { id, on: { change: () => draw() } });
  const after = choose("compare-after"), before = choose("compare-before");
  const go = h("button", { type: "button", id: "compare", disabled: true, on: { click: () => { location.hash = pathOf(after.value, before.value); } } }, "Compare");
  let all = [];
  const option = (j) => h("option", { value: j.jid }, plain(j.fun) + " " + plain(j.arg || []).slice(0, 60) + ", " + (j.time || j.jid));
  const draw = () => {
    const now = all.find((j) => j.jid === after.value), chosen = before.value;
    const list = now ? all.filter((j) => j.fun === now.fun && j.jid < now.jid) : [];
    fill(before, list.map(option));
    if (list.some((j) => j.jid === chosen)) before.value = chosen;
    go.disabled = list.length === 0;
  };
  look("jobs", { fun: "state.*", limit: 50 }).then((d) => {
    all = d.rows.filter((j) => typeof j.fun === "string");
    fill(after, all.map(option));
    draw();
  }, () => {});
  return h("details", { class: "card", id: "compare-runs" }, h("summary", {}, "Compare two runs"), h("div", { class: "fields" },
    h("div", {}, h("label", { for: "compare-after" }, "Run"), after), h("div", {}, h("label", { for: "compare-before" }, "Earlier run"), before), go));
}
