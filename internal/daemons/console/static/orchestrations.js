// Orchestrations: runs of SLS files on the master that command minions.

import { h, fill, row, table, status, say } from "./dom.js";
import { look, run } from "./api.js";
import { store, watch } from "./store.js";
import { result } from "./result.js";
import { address, plain, recent } from "./text.js";

const shownRuns = 50;
const isOrchestration = (fun) => /^runner\.state\.(orch|sls)/.test(fun) && !fun.includes("show");

// orchestrations starts one, and shows those since this page was opened with each step as it is
// done, and the earlier ones that have ended as the job cache has them.
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
  const earlier = new Map(); // by jid: those of the job cache, as store.runs has them
  let missing = ""; // why the one that is shown is not there
  const one = (jid) => {
    const r = store.runs.get(jid) || earlier.get(jid);
    if (!r) return h("p", { class: "quiet" }, missing || "Looking for it.");
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
  // ran is what a runner returned: the job cache has the event of its end in place of that.
  const ran = (v) => (v && typeof v === "object" && v.fun && "return" in v ? v.return : v);
  // stepsOf are the states in a result, in the order in which they ran.
  const stepsOf = (v) => (v && typeof v === "object" && !Array.isArray(v) ? Object.entries(v) : []).filter(([k, s]) => k.split("_|-").length === 4 && s && typeof s === "object")
    .map(([k, s]) => ({ name: k.split("_|-")[2], __id__: k.split("_|-")[1], ...s })).sort((a, b) => (a.__run_num__ ?? 0) - (b.__run_num__ ?? 0));
  let told = "", over = false;
  const load = async () => {
    try {
      if (!part && user.may["runner.fleet.jobs"]) {
        const d = await look("jobs", { fun: "runner.state.*", limit: shownRuns });
        for (const j of d.rows) if (isOrchestration(String(j.fun))) earlier.set(j.jid, { about: { fun: j.fun, fun_args: j.arg, user: j.user }, at: Date.parse(j.time), steps: [], total: 0, ret: { failed: j.failed > 0 } });
      } else if (part && !store.runs.has(part) && user.may["runner.fleet.job"]) {
        const d = await look("job", { jid: part });
        const [id, kept] = Object.entries(d.results)[0] || [];
        const r = kept && kept.cut && user.may["runner.fleet.result"] ? await look("result", { jid: part, id }) : kept;
        if (!isOrchestration(String(d.fun))) missing = "This job is no orchestration.";
        else if (!r) missing = "The job cache has no result of it.";
        else earlier.set(part, { about: { fun: d.fun, fun_args: d.arg, user: d.user }, at: Date.parse(d.time), steps: stepsOf(inner(ran(r.return))), total: 0, ret: { failed: r.failed, return: ran(r.return) } });
      } else {
        missing = "No event of this orchestration has come since this page was opened, and your permissions do not include runner fleet.job.";
      }
    } catch (e) {
      missing = e.message;
    }
    if (!over) draw();
  };
  const draw = () => {
    if (part) {
      const r = store.runs.get(part);
      const opened = list.querySelector("#return[open]") !== null;
      fill(list, one(part));
      if (opened && list.querySelector("#return")) list.querySelector("#return").open = true;
      if (r && r.ret && told !== part) { told = part; say("The orchestration has ended."); }
      return;
    }
    const all = [...new Map([...earlier, ...store.runs])].sort(([a], [b]) => (a < b ? 1 : -1));
    fill(list, all.length === 0 ? h("p", { class: "quiet" }, user.may["runner.fleet.jobs"] ? "No orchestration is in the job cache." : "No orchestration has run since this page was opened.") :
      table("Orchestrations", ["Started", "Function", "Arguments", "User", "State"], all.map(([jid, r]) => row([h("a", { href: "#/orchestrations/" + address(jid) }, recent(r.at)),
        plain(r.about.fun || ""), h("span", { class: "data" }, plain(r.about.fun_args || []).slice(0, 300)), r.about.user || "", stateOf(r)], { "data-jid": jid }))));
  };
  fill(main, h("h1", {}, "Orchestrations"), error, part ? h("p", {}, h("a", { href: "#/orchestrations" }, "All orchestrations")) :
    may ? h("form", { class: "card", on: { submit: start } }, h("div", { class: "fields" }, mods, env, data, h("label", { class: "check" }, test, " Only test"), h("button", { type: "submit", class: "main", id: "start" }, "Run"))) :
      h("p", { class: "quiet" }, "Your permissions do not include runner state.orchestrate: you see what others run, as far as you see their events."), list);
  draw();
  load();
  const end = watch("runs", draw);
  return () => { over = true; end(); };
}
