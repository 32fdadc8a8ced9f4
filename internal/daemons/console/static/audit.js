// Who called what on the masters.

import { h, fill, table, row, status, tools } from "./dom.js";
import { read } from "./api.js";
import { address, date, plain } from "./text.js";

const heads = ["Time", "User", "From", "Function", "Target", "Result", "Job", "Master"];
const kinds = { "needs approval": "waiting", done: "ok", refused: "failed", denied: "failed", failed: "failed", "no answer": "failed" };

export function audit(main, { query }) {
  const list = h("div", { id: "list" }), error = h("p", { class: "error", role: "alert" });
  const field = (name, label) => h("div", {}, h("label", { for: "f-" + name }, label), h("input", { id: "f-" + name, class: name === "user" ? "filter" : null, value: query.get(name) || "" }));
  const fields = { user: field("user", "User (pattern)"), fun: field("fun", "Function (pattern)") };
  const result = h("select", { id: "f-result" }, ["", "done", "refused", "denied", "needs approval", "failed"].map((r) => h("option", { value: r }, r || "all")));
  result.value = query.get("result") || "";
  const of = (name) => fields[name].querySelector("input").value;
  const columns = tools("Records", heads, () => list.querySelector("table"));
  let over = false, asked = 0, typing = null;
  const load = async () => {
    const n = ++asked;
    const q = new URLSearchParams({ limit: 200 });
    for (const [k, v] of [["user", of("user")], ["fun", of("fun")], ["result", result.value]]) if (v) q.set(k, v);
    try {
      const all = await read("audit?" + q);
      if (over || n !== asked) return;
      fill(error);
      fill(list, all.length === 0 ? h("p", { class: "quiet" }, "There are no records.") : table("Records", heads, all.map((r) => row([
        r.time ? date(r.time + "Z") || r.time : "", [r.user || "", r.approved_by && " (approved by " + r.approved_by + ")"], [r.auth, r.from].filter(Boolean).join(" "), [plain(r.fun).slice(0, 200), r.asked_by && h("div", { class: "quiet" }, (plain(r.asked_fun) + ", asked by " + r.asked_by).slice(0, 300))], plain(r.tgt ?? "").slice(0, 200), status(kinds[r.result] || "waiting", [r.result, r.problem].filter(Boolean).join(": ").slice(0, 200)),
        r.jid ? h("a", { href: "#/jobs/" + address(r.jid) }, r.jid) : "", r.master || ""]))));
      columns.apply();
    } catch (e) {
      if (!over && n === asked) fill(error, e.message);
    }
  };
  const later = () => { clearTimeout(typing); typing = setTimeout(load, 300); };
  for (const d of Object.values(fields)) d.addEventListener("input", later);
  result.addEventListener("change", load);
  fill(main, h("h1", {}, "Audit"), h("p", { class: "quiet" }, "Requests of users to the masters, the newest first. Arguments are not recorded, since they may be secrets."), error,
    h("div", { class: "fields" }, Object.values(fields), h("div", {}, h("label", { for: "f-result" }, "Result"), result), columns.bar), list);
  load();
  return () => { over = true; clearTimeout(typing); };
}
