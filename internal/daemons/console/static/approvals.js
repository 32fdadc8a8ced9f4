// Jobs that wait for a second user, where the master has approval_above.

import { h, fill, row, table, status, ask, say } from "./dom.js";
import { read, remove, write } from "./api.js";
import { address, plain, date } from "./text.js";

const kinds = { waiting: "waiting", started: "waiting", approved: "ok", rejected: "failed", failed: "failed", expired: "offline" };
const interval = 5000; // milliseconds between two readings

export function approvals(main) {
  const list = h("div", { id: "list" }), error = h("p", { class: "error", role: "alert" });
  let over = false, shown = "", timer = null;
  const load = async () => {
    clearTimeout(timer);
    try {
      const all = (await read("approvals")).approvals;
      if (over) return;
      fill(error);
      if (JSON.stringify(all) !== shown) draw(all);
      shown = JSON.stringify(all);
    } catch (e) {
      if (!over) fill(error, e.message);
    }
    if (!over) timer = setTimeout(load, interval);
  };
  const what = (a) => [h("strong", { class: "data" }, plain(a.fun)), " ", h("span", { class: "data" }, [...(a.arg || []), ...Object.entries(a.kwarg || {}).map(([k, v]) => k + "=" + plain(v))].map(plain).join(" ").slice(0, 2000))];
  const target = (a) => plain(a.tgt).slice(0, 300) + " (" + (a.tgt_type || "glob") + (a.batch ? ", " + plain(a.batch) + " at a time" : "") + ")";
  const draw = (all) => fill(list, all.length === 0 ? h("p", { class: "quiet" }, "No job waits for a second user.") :
    table("Approvals", ["Asked", "By", "Job", "Target", "State", "Actions"], all.map((a) => row([date(a.asked * 1000), [a.user, h("br"), h("span", { class: "quiet" }, a.from)],
      [what(a), h("p", { class: "quiet" }, a.reason)], h("span", { class: "data" }, target(a)),
      [status(kinds[a.state] || "waiting", a.state + (a.by ? " by " + a.by : "")), a.jid && h("div", {}, h("a", { href: "#/jobs/" + address(a.jid) }, a.jid)), a.problem && h("div", { class: "error" }, a.problem)],
      a.state === "waiting" ? h("span", { class: "words" },
        !a.own && h("button", { type: "button", class: "approve", "aria-label": "Approve " + plain(a.fun) + " of " + a.user, on: { click: () => decide(a, true) } }, "Approve"),
        h("button", { type: "button", class: "reject danger", "aria-label": (a.own ? "Withdraw " : "Reject ") + plain(a.fun) + " of " + a.user, on: { click: () => decide(a, false) } }, a.own ? "Withdraw" : "Reject")) : ""],
    { "data-approval": a.id, "data-state": a.state }))));
  const decide = async (a, yes) => {
    const word = yes ? "Approve" : a.own ? "Withdraw" : "Reject";
    if (!await ask(word + " a job", h("div", {}, h("p", {}, what(a)), h("p", {}, "For ", h("span", { class: "data" }, target(a)), ", by ", h("strong", {}, a.user), ".")), word, !yes)) return;
    try {
      if (yes) await write("approvals/" + address(a.id), {});
      else await remove("approvals/" + address(a.id));
      say(word + ": done.");
      await load();
    } catch (e) {
      if (!over) fill(error, e.message);
    }
  };
  fill(main, h("h1", {}, "Approvals"), h("p", { class: "quiet" }, "Jobs for more minions than the master's approval_above wait here until a second user, who may run them, approves. They wait for an hour."), error, list);
  load();
  return () => { over = true; clearTimeout(timer); };
}
