// Who called what on the masters.

import { h, fill, table, row, save, status, tools } from "./dom.js";
import { read } from "./api.js";
import { address, date, plain } from "./text.js";

const heads = ["Time", "User", "From", "Function", "Target", "Result", "Job", "Master", "Number", "Hash"];
const kinds = { "needs approval": "waiting", done: "ok", refused: "failed", denied: "failed", failed: "failed", "no answer": "failed" };

// where names a record.
const where = (p) => (p.seq > 0 ? "record " + p.seq + (p.time ? " (" + (date(p.time + "Z") || p.time) + ")" : "") : "the beginning");

// chain shows from where to where the records of a master are whole.
function chain(id, r) {
  if (r.problem) return h("p", { "data-chain": id }, status("failed", "not checked"), " ", h("strong", {}, id), " ", r.problem);
  const found = (list, kind) => list.length > 0 && h("ul", { class: kind }, list.map((f) => h("li", {}, "After ", where(f.after), ": ", f.what, ".")));
  return h("div", { "data-chain": id }, h("p", {}, status(r.whole ? "ok" : "failed", r.whole ? "whole" : "broken"), " ", h("strong", {}, id), " ",
    r.ranges.length === 0 ? "has no record with a hash. " : r.ranges.map((x, i) => [i > 0 && ", and ", "from " + where(x.from) + " to " + where(x.to)]), r.unhashed > 0 && ". " + r.unhashed + " older records have no hashes",
    r.copies !== undefined && ". " + r.copies + " copies in the console_store were compared" + (r.lacking > 0 ? "; " + r.lacking + " records have none there" : "")),
  found(r.breaks, "error"), found(r.notes, "quiet"));
}

export function audit(main, { query, user }) {
  const list = h("div", { id: "list" }), error = h("p", { class: "error", role: "alert" });
  const field = (name, label) => h("div", {}, h("label", { for: "f-" + name }, label), h("input", { id: "f-" + name, class: name === "user" ? "filter" : null, value: query.get(name) || "" }));
  const fields = { user: field("user", "User (pattern)"), fun: field("fun", "Function (pattern)") };
  const result = h("select", { id: "f-result" }, ["", "done", "refused", "denied", "needs approval", "failed"].map((r) => h("option", { value: r }, r || "all")));
  result.value = query.get("result") || "";
  const of = (name) => fields[name].querySelector("input").value;
  const columns = tools("Records", heads, () => list.querySelector("table"), ["Number", "Hash"]);
  const chains = h("div", { id: "chains", role: "status" });
  let over = false, asked = 0, typing = null, shown = [];
  const check = async () => {
    try {
      const all = await read("chain");
      if (!over) fill(chains, Object.entries(all).map(([id, r]) => chain(id, r)));
    } catch (e) {
      if (!over) fill(chains, h("p", { class: "error" }, e.message));
    }
  };
  const load = async () => {
    const n = ++asked;
    const q = new URLSearchParams({ limit: "200" });
    for (const [k, v] of [["user", of("user")], ["fun", of("fun")], ["result", result.value]]) if (v) q.set(k, v);
    try {
      const all = await read("audit?" + q);
      if (over || n !== asked) return;
      shown = all;
      fill(error);
      fill(list, all.length === 0 ? h("p", { class: "quiet" }, "There are no records.") : table("Records", heads, all.map((r) => row([
        r.time ? date(r.time + "Z") || r.time : "", [r.user || "", r.approved_by && " (approved by " + r.approved_by + ")"], [r.auth, r.from].filter(Boolean).join(" "), [plain(r.fun).slice(0, 200), r.asked_by && h("div", { class: "quiet" }, (plain(r.asked_fun) + ", asked by " + r.asked_by).slice(0, 300))], plain(r.tgt ?? "").slice(0, 200), status(kinds[r.result] || "waiting", [r.result, r.problem].filter(Boolean).join(": ").slice(0, 200)),
        r.jid ? h("a", { href: "#/jobs/" + address(r.jid) }, r.jid) : "", r.master || "", r.seq ?? "", r.hash ? h("span", { class: "data" }, r.hash) : ""]))));
      columns.apply();
    } catch (e) {
      if (!over && n === asked) fill(error, e.message);
    }
  };
  const later = () => { clearTimeout(typing); typing = setTimeout(load, 300); };
  for (const d of Object.values(fields)) d.addEventListener("input", later);
  result.addEventListener("change", load);
  fill(main, h("h1", {}, "Audit"), h("p", { class: "quiet" }, "Requests of users to the masters, the newest first. Arguments are not recorded, since they may be secrets."), error,
    h("div", { class: "fields" }, Object.values(fields), h("div", {}, h("label", { for: "f-result" }, "Result"), result), columns.bar,
      h("button", { type: "button", id: "json", on: { click: () => save("records.json", "application/json", JSON.stringify(shown, null, 2)) } }, "Save as JSON")), list,
    user.may["runner.audit.verify"] && [h("h2", {}, "Chain of hashes"), h("p", { class: "quiet" }, "Each record has a hash of itself and of the one before it, with a key of its master: what is changed, removed or inserted in the files is found."), chains,
      h("button", { type: "button", id: "check", on: { click: check } }, "Check again")]);
  load();
  if (user.may["runner.audit.verify"]) check();
  return () => { over = true; clearTimeout(typing); };
}
