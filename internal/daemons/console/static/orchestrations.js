// Orchestrations: runs of SLS files on the master that command minions.

import { h, fill, row, table, status, say } from "./dom.js";
import { run } from "./api.js";
import { store, watch } from "./store.js";
import { result } from "./result.js";
import { address, plain, when } from "./text.js";

// orchestrations starts one, and shows those since this page was opened: the master keeps the
// results of orchestrations in its job cache (salt-run jobs.lookup_jid), but no list of steps.
export function orchestrations(main, { part, user }) {
  const error = h("p", { class: "error", role: "alert" }), list = h("div", { id: "list" });
  const field = (id, label, more) => h("div", { class: "grow" }, h("label", { for: id }, label), h("input", { id, spellcheck: "false", autocapitalize: "none", ...more }));
  const mods = field("mods", "SLS files", { required: true, placeholder: "orch.deploy", class: "filter" }), env = field("saltenv", "Environment", { placeholder: "base" }), data = field("pillar", "Pillar, as JSON", { placeholder: "{}" });
  const test = h("input", { type: "checkbox", id: "test" });
  const of = (e) => e.querySelector("input").value.trim();
  const may = user.may["runner.state.orchestrate"];
  const start = async (e) => {
    e.preventDefault();
    fill(error);
    try {
      const kwarg = { mods: of(mods), state_events: true };
      if (of(env)) kwarg.saltenv = of(env);
      if (of(data)) kwarg.pillar = JSON.parse(of(data));
      if (test.checked) kwarg.test = true;
      const got = await run({ client: "runner_async", fun: "state.orchestrate", kwarg });
      location.hash = "#/orchestrations/" + address(got.jid);
    } catch (x) {
      fill(error, x instanceof SyntaxError ? "The pillar is no JSON: " + x.message : x.message);
    }
  };
  const stateOf = (r) => {
    if (!r.ret) return status("waiting", "running, " + r.steps.length + " steps done");
    return r.ret.success === false || r.ret.failed ? status("failed", "failed") : status("ok", "done");
  };
  const kindOf = (s) => (s.result === false ? "failed" : s.result === null ? "waiting" : s.changes && Object.keys(s.changes).length > 0 ? "changed" : "ok");
  const one = (jid) => {
    const r = store.runs.get(jid);
    if (!r) return h("p", { class: "quiet" }, "No event of this orchestration has come since this page was opened. Its result: salt-run jobs.lookup_jid " + jid);
    const steps = table("Steps", ["Step", "State", "Result", "Comment"], r.steps.map((s, i) => row([i + 1, h("span", { class: "data" }, [s.__id__ || s.name, s.name && s.name !== s.__id__ ? " (" + plain(s.name) + ")" : ""]),
      status(kindOf(s), { failed: "failed", waiting: "would change", changed: "changed", ok: "in order" }[kindOf(s)]), h("span", { class: "data" }, plain(s.comment || "").slice(0, 500))], { "data-step": i + 1 })));
    return [h("h2", {}, h("span", { class: "data" }, jid), " ", stateOf(r)), r.total > 0 && h("progress", { max: r.total, value: r.steps.length, "aria-label": "Steps done" }), r.steps.length > 0 && steps,
      r.ret && r.ret.return !== undefined && h("details", { class: "card", id: "return" }, h("summary", {}, "The whole result"), result(inner(r.ret.return)))];
  };
  // inner is the result of the master's states in the return of the runner.
  const inner = (v) => {
    const all = v && typeof v === "object" && v.data && typeof v.data === "object" ? Object.values(v.data) : [];
    return all.length === 1 ? all[0] : v;
  };
  let told = "";
  const draw = () => {
    if (part) {
      const r = store.runs.get(part);
      const opened = list.querySelector("#return[open]") !== null;
      fill(list, one(part));
      if (opened && list.querySelector("#return")) list.querySelector("#return").open = true;
      if (r && r.ret && told !== part) { told = part; say("The orchestration has ended."); }
      return;
    }
    fill(list, store.runs.size === 0 ? h("p", { class: "quiet" }, "No orchestration has run since this page was opened.") :
      table("Orchestrations", ["Started", "Function", "Arguments", "User", "State"], [...store.runs].reverse().map(([jid, r]) => row([h("a", { href: "#/orchestrations/" + address(jid) }, when(r.at)),
        plain(r.about.fun || ""), h("span", { class: "data" }, plain(r.about.fun_args || []).slice(0, 300)), r.about.user || "", stateOf(r)], { "data-jid": jid }))));
  };
  fill(main, h("h1", {}, "Orchestrations"), error, part ? h("p", {}, h("a", { href: "#/orchestrations" }, "All orchestrations")) :
    may ? h("form", { class: "card", on: { submit: start } }, h("div", { class: "fields" }, mods, env, data, h("label", { class: "check" }, test, " Only test"), h("button", { type: "submit", class: "main", id: "start" }, "Run"))) :
      h("p", { class: "quiet" }, "Your permissions do not include runner state.orchestrate: you see what others run, as far as you see their events."), list);
  draw();
  return watch("runs", draw);
}
