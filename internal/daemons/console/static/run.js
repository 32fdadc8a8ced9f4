import { h, fill, status, ask } from "./dom.js";
import { write, look } from "./api.js";
import { builder } from "./chips.js";
import { savedBox } from "./saved.js";
import { argumentForm, fromSpec, items } from "./form.js";
import { quoted, words } from "./words.js";
import { store, watch } from "./store.js";
import { address, choice, choose } from "./text.js";

export const types = ["glob", "list", "grain", "compound", "nodegroup", "pcre", "grain_pcre", "pillar", "ipcidr"];
const flags = { list: "-L", grain: "-G", compound: "-C", nodegroup: "-N", pcre: "-E", grain_pcre: "-P", pillar: "-I", ipcidr: "-S" };

// many is the number of minions above which a job needs a confirmation. tested are functions that
// take test=True.
const many = 100, tested = /^state\.(apply|highstate|sls|sls_id|single|template|template_str|top)$/;

// ofStates are arguments that functions of states take by name beside the declared ones.
const ofStates = ["test", "pillar", "saltenv", "pillarenv", "exclude", "queue", "localconfig", "sync_mods"];

// askedSpecs are declarations that the user had a minion describe, by name of the function.
const askedSpecs = new Map();

// draft is a job that another page hands over: in memory, since arguments may have passwords, and
// addresses stay in the history of the browser.
let draft = null;
export const handOver = (jid, job) => { draft = { jid, ...job }; };

// asLine writes arguments as on a command line.
export const asLine = (arg) => arg.flatMap((a) => {
  const text = (v) => (typeof v === "string" ? v : JSON.stringify(v));
  if (a !== null && typeof a === "object" && a.__kwarg__ === true) return Object.entries(a).filter(([k]) => k !== "__kwarg__").map(([k, v]) => k + "=" + text(v));
  return [text(a)];
}).map(quoted).join(" ");

// runPage starts a job, and goes to its page.
export function runPage(main, { query, user }) {
  const tgt = h("input", { id: "tgt", value: query.get("tgt") || (query.has("job") ? "" : "*"), required: true, spellcheck: "false" });
  const type = h("select", { id: "tgt_type" }, types.map((t) => h("option", { value: t }, t)));
  type.value = types.includes(query.get("tgt_type")) ? query.get("tgt_type") : "glob";
  const fun = h("input", { id: "fun", value: query.get("fun") || "", required: true, list: "functions", spellcheck: "false", autocapitalize: "none", class: "filter" });
  const args = h("input", { id: "args", spellcheck: "false", autocapitalize: "none" });
  const names = h("datalist", { id: "functions" }), doc = h("div", { id: "doc" }), matches = h("p", { id: "matches", class: "quiet", role: "status" });
  const shell = h("p", { class: "data", id: "shell" }), error = h("p", { class: "error", role: "alert" });
  const batch = h("input", { id: "batch", value: query.get("batch") || "", size: 6, placeholder: "all", pattern: "[0-9]+%?", spellcheck: "false" });
  const timeout = h("input", { id: "timeout", type: "number", min: 1, max: 86400, placeholder: "usual" });
  const build = builder(type, tgt, () => later());
  const button = h("button", { type: "submit", class: "main", id: "start" }, "Run");
  const first = h("button", { type: "button", id: "test-first", hidden: true, on: { click: (e) => start(e, ["test=True"]) } }, "Test first");
  const curl = h("p", { class: "data", id: "curl" });
  let over = false, asked = 0, matched = null, due = null, docDue = null, described = null, spec = null, ids = [], endAsking = () => {};
  const stateNames = [];

  const line = () => {
    try {
      const batched = batch.value && /^[0-9]+%?$/.test(batch.value);
      fill(shell, ["salt", ...(batched ? ["-b", batch.value] : []), ...(timeout.value ? ["-t", timeout.value] : []), ...(flags[type.value] ? [flags[type.value]] : []), quoted(tgt.value), fun.value || "FUNCTION", ...words(args.value).map(quoted)].join(" "));
      const fields = [["client", batched ? "local_batch" : "local_async"], ...(batched ? [["batch", batch.value]] : []), ...(timeout.value ? [["timeout", timeout.value]] : []), ["tgt", tgt.value], ["tgt_type", type.value], ["fun", fun.value || "FUNCTION"], ...words(args.value).map((w) => ["arg", w])];
      fill(curl, ["curl -s", quoted(location.origin + location.pathname.replace(/\/console\/.*$/, "")), "-H 'X-Auth-Token: TOKEN'",
        ...fields.map(([k, v]) => "--data-urlencode " + quoted(k + "=" + v))].join(" "));
      first.hidden = !tested.test(fun.value);
      fill(error);
    } catch (e) {
      fill(error, e.message);
    }
  };
  const preview = async () => {
    matched = null;
    if (!user.may["runner.fleet.preview"] || !tgt.value) return;
    const n = ++asked;
    try {
      const d = await look("preview", { tgt: tgt.value, tgt_type: type.value });
      if (over || n !== asked) return;
      matched = d.matched;
      ids = d.ids;
      fill(matches, (d.matched === 1 ? "1 minion matches" : d.matched + " minions match") + (d.matched ? ": " + Object.entries(d.states).map(([s, c]) => c + " " + s).join(", ") + (Object.keys(d.masters).length > 1 ? "; " + Object.entries(d.masters).map(([m, c]) => c + " at " + m).join(", ") : "") + ". " : "."),
        d.unknown > 0 && h("strong", { id: "unknown" }, d.unknown + (d.unknown === 1 ? " is" : " are") + " counted only because the master does not know the data that the target asks for. "),
        h("span", { class: "data" }, d.ids.slice(0, 12).join(", ") + (d.matched > 12 ? " \u2026" : "")));
    } catch (e) {
      if (!over && n === asked) fill(matches, e.message);
    }
  };
  // The form of the arguments, where the function is known; else, or by choice, the line.
  const form = argumentForm(args, () => {
    line();
    if (fun.value !== "state.single") return;
    clearTimeout(docDue);
    docDue = setTimeout(ofSingle, 300);
  });
  const asLineBox = h("div", { id: "line-box" }, h("label", { for: "args" }, "Arguments, as on a command line"), args);
  const formBox = h("div", { hidden: true }, form.box), note = h("p", { class: "quiet", id: "args-note", role: "status" });
  const mode = h("button", { type: "button", id: "args-mode", hidden: true, on: { click: () => {
    choose("arguments", formBox.hidden ? "" : "line");
    arrange();
    (formBox.hidden ? args : form.box.querySelector("input, select, button") || mode).focus();
  } } });
  const arrange = () => {
    let problem = "";
    const wanted = spec && choice("arguments") !== "line";
    if (wanted) {
      try { form.show(spec); } catch (e) { problem = e.message; }
    }
    const on = Boolean(wanted && !problem);
    formBox.hidden = !on;
    asLineBox.hidden = on;
    mode.hidden = !spec;
    mode.textContent = on ? "Write them as one line" : "Fill in a form";
    if (problem) fill(note, problem + " The form is there when it is.");
    else if (spec) fill(note);
  };
  // declare takes what is known of a function; null: nothing.
  const declare = (s) => { spec = s; arrange(); };
  // ofSingle adds the arguments of the state function that state.single names.
  const ofSingle = async () => {
    let name = "";
    try { name = (items(args.value).find((i) => i.name === null || i.name === "fun") || { text: "" }).text; } catch { return; }
    if (!spec || fun.value !== "state.single" || name === ((spec.more || {}).of || "") || !/^\w+\.\w+$/.test(name)) return;
    try {
      const d = await look("functions", { name, kind: "states" });
      if (over || fun.value !== "state.single" || !spec) return;
      const at = document.activeElement && document.activeElement.id;
      declare({ ...spec, more: d.params ? { of: name, title: "Arguments of " + name, params: d.params.filter((p) => p.name !== "name") } : null });
      fill(doc, docOf(name, (d.doc || {})[name], d.params || []));
      if (at && document.getElementById(at)) document.getElementById(at).focus();
    } catch { /* its arguments can be added by name */ }
  };
  const docOf = (name, text, params) => [h("h2", { class: "data" }, name, params.map((p) => " " + p.name + ("default" in p ? "=" + JSON.stringify(p.default) : ""))),
    text && h("pre", { class: "data", tabindex: "0", role: "region", "aria-label": "Documentation of " + name }, text)];
  // askMinion has one minion describe a function that the master does not know, as a job.
  const askMinion = async (name) => {
    try {
      if (matched === null) await preview();
      const id = ids.find((i) => (store.minions.get(i) || {}).state === "up") || ids[0] || (/^[\w.-]+$/.test(tgt.value) ? tgt.value : "");
      if (over || fun.value !== name) return;
      if (!id) { offer(name, "No minion is known to match the target."); return; }
      const got = await write("jobs", { tgt: [id], tgt_type: "list", fun: "sys.argspec", arg: [name] });
      if (got.approval) { location.hash = "#/approvals"; return; }
      fill(note, id + " is asked for the arguments of " + name + ".");
      const take = () => {
        const r = ((store.jobs.get(got.jid) || {}).results || new Map()).get(id);
        if (!r || over) return;
        endAsking();
        const found = (r.return || {})[name];
        if (!found) { offer(name, id + " does not describe " + name + "."); return; }
        askedSpecs.set(name, { params: fromSpec(found), varargs: Boolean(found.varargs), kwargs: Boolean(found.kwargs) });
        if (fun.value === name) declare(askedSpecs.get(name));
      };
      endAsking();
      endAsking = watch("jobs", take);
      take();
    } catch (e) {
      if (!over) offer(name, e.message);
    }
  };
  const offer = (name, text) => fill(note, text + " ",
    user.commands && h("button", { type: "button", id: "ask-minion", on: { click: () => askMinion(name) } }, "Ask a minion for its arguments"));
  const describe = async () => {
    const name = fun.value;
    if (described === name) return;
    described = name;
    fill(doc);
    fill(note);
    declare(askedSpecs.get(name) || null);
    if (!user.may["runner.fleet.functions"] || !/^\w+\.\w+$/.test(name)) return;
    try {
      const d = await look("functions", { name });
      if (over || fun.value !== name) return;
      const found = (d.argspec || {})[name], text = (d.doc || {})[name];
      if (!found && !text) {
        if (!spec) offer(name, "Brine has no function of this name; a module of yours may have it.");
        return;
      }
      const params = d.params || fromSpec(found);
      fill(doc, docOf(name, text, params));
      declare({ params, varargs: Boolean(found && found.varargs), kwargs: Boolean(found && found.kwargs), names: name.startsWith("state.") ? ofStates : [],
        options: name === "state.single" ? { fun: stateNames } : null });
      if (name === "state.single") {
        ofSingle();
        if (stateNames.length === 0) {
          stateNames.push(...await look("functions", { kind: "states" }));
          if (!over && fun.value === name) arrange();
        }
      }
    } catch { /* the documentation is not needed to run it */ }
  };
  // sure asks for the number of minions before a job for many of them.
  const sure = async (more) => {
    if (more || matched === null || matched <= many || fun.value.startsWith("test.")) return true;
    const typed = h("input", { id: "number", inputmode: "numeric", autocomplete: "off" });
    const ok = await ask("Many minions", h("div", {}, h("p", {}, "This runs " + fun.value + " on " + matched + " minions. Type the number of minions to go on."),
      h("label", { for: "number" }, "Number of minions"), typed), "Run", true);
    if (ok && typed.value.trim() !== String(matched)) fill(error, "The number is not " + matched + ": nothing was started.");
    return ok && typed.value.trim() === String(matched);
  };
  const start = async (e, more) => {
    e.preventDefault();
    fill(error);
    const bad = formBox.hidden ? [] : form.problems();
    if (bad.length > 0) {
      fill(error, "Nothing was started: look at " + bad.map((b) => b.name).join(", ") + ". As one line it can be run all the same.");
      bad[0].input.closest("details:not([open])")?.setAttribute("open", "");
      bad[0].input.focus();
      return;
    }
    if (!await sure(more)) return;
    button.disabled = first.disabled = true;
    try {
      const job = { tgt: tgt.value, tgt_type: type.value, fun: fun.value, arg: [...words(args.value), ...(more || [])] };
      if (batch.value) job.batch = batch.value;
      if (timeout.value) job.timeout = Number(timeout.value);
      const got = await write("jobs", job);
      if (got.approval) {
        location.hash = "#/approvals";
        return;
      }
      location.hash = "#/jobs/" + address(got.jid);
    } catch (x) {
      fill(error, x.status === 404 ? "No minion matches the target." : x.message);
    } finally {
      button.disabled = first.disabled = false;
    }
  };
  const later = () => { clearTimeout(due); line(); due = setTimeout(preview, 300); };
  tgt.addEventListener("input", () => { build.draw(); later(); });
  type.addEventListener("change", () => { build.draw(); later(); });
  for (const f of [batch, timeout]) f.addEventListener("input", line);
  fun.addEventListener("input", () => { line(); clearTimeout(docDue); docDue = setTimeout(describe, 300); });
  args.addEventListener("input", () => { line(); if (!formBox.hidden) arrange(); });
  // What other users saved is used as text only; unknown types of targets count as a glob.
  const takeTarget = (d) => {
    tgt.value = Array.isArray(d.tgt) ? d.tgt.join(",") : String(d.tgt ?? "*");
    type.value = types.includes(d.tgt_type) ? d.tgt_type : "glob";
    build.draw();
    later();
  };
  const targetNow = () => ({ tgt: tgt.value, tgt_type: type.value });
  const takeJob = (d) => {
    takeTarget(d);
    fun.value = String(d.fun ?? "");
    args.value = String(d.args ?? (Array.isArray(d.arg) ? d.arg.map((a) => quoted(String(a))).join(" ") : ""));
    batch.value = String(d.batch ?? "");
    timeout.value = String(d.timeout ?? "");
    line();
    arrange();
    describe();
  };
  fill(main, h("h1", {}, "Run"), user.commands ? null : h("p", { class: "error" }, status("failed", "Your permissions include no function of minions.")),
    h("div", { class: "beside" }, h("form", { on: { submit: start }, class: "card" },
      h("div", { class: "fields" }, h("div", {}, h("label", { for: "tgt_type" }, "Target type"), type), h("div", { class: "grow" }, h("label", { for: "tgt" }, "Target"), tgt)), build.box,
      savedBox("target", user, targetNow, takeTarget), matches,
      h("div", { class: "fields" }, h("div", { class: "grow" }, h("label", { for: "fun" }, "Function"), fun, names), h("div", { class: "grow" }, asLineBox), mode),
      note, formBox,
      h("div", { class: "fields" }, h("div", {}, h("label", { for: "batch" }, "Minions at a time (number or %)"), batch), h("div", {}, h("label", { for: "timeout" }, "Timeout in seconds"), timeout), first, button),
      savedBox("job", user, () => ({ ...targetNow(), fun: fun.value, args: args.value, ...(batch.value ? { batch: batch.value } : {}), ...(timeout.value ? { timeout: timeout.value } : {}) }), takeJob),
      error, h("p", { class: "quiet" }, "The same on the command line, and for the REST API:"), shell, curl), doc));
  if (draft && draft.jid === query.get("job")) takeJob({ ...draft, args: asLine(draft.arg) });
  draft = null;
  line();
  preview();
  describe();
  if (user.may["runner.fleet.functions"]) {
    look("functions").then((all) => { if (!over) fill(names, all.map((f) => h("option", { value: f }))); }, () => {});
  }
  return () => { over = true; clearTimeout(due); clearTimeout(docDue); endAsking(); };
}
