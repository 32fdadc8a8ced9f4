import { h, fill, status, ask } from "./dom.js";
import { write, look } from "./api.js";
import { builder } from "./chips.js";
import { savedBox } from "./saved.js";
import { address } from "./text.js";

export const types = ["glob", "list", "grain", "compound", "nodegroup", "pcre", "grain_pcre", "pillar", "ipcidr"];
const flags = { list: "-L", grain: "-G", compound: "-C", nodegroup: "-N", pcre: "-E", grain_pcre: "-P", pillar: "-I", ipcidr: "-S" };

// many is the number of minions above which a job needs a confirmation. tested are functions that
// take test=True.
const many = 100, tested = /^state\.(apply|highstate|sls|sls_id|single|template|template_str|top)$/;

// words splits a line like a shell does, without expansions.
export function words(line) {
  const out = [];
  let word = null, quote = "";
  for (let i = 0; i < line.length; i++) {
    const c = line[i];
    if (quote) {
      if (c === quote) quote = "";
      else if (c === "\\" && quote === '"' && i + 1 < line.length) word += line[++i];
      else word += c;
    } else if (c === "'" || c === '"') {
      quote = c;
      word = word ?? "";
    } else if (c === "\\" && i + 1 < line.length) word = (word ?? "") + line[++i];
    else if (c === " " || c === "\t") {
      if (word !== null) out.push(word);
      word = null;
    } else word = (word ?? "") + c;
  }
  if (quote) throw new Error("A quote in the arguments is not closed.");
  if (word !== null) out.push(word);
  return out;
}

export const quoted = (w) => (/^[\w@%+=:,./-]+$/.test(w) ? w : "'" + w.replaceAll("'", "'\\''") + "'");

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
  let over = false, asked = 0, matched = null, due = null, docDue = null;

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
      fill(matches, (d.matched === 1 ? "1 minion matches" : d.matched + " minions match") + (d.matched ? ": " + Object.entries(d.states).map(([s, c]) => c + " " + s).join(", ") + (Object.keys(d.masters).length > 1 ? "; " + Object.entries(d.masters).map(([m, c]) => c + " at " + m).join(", ") : "") + ". " : "."),
        d.unknown > 0 && h("strong", { id: "unknown" }, d.unknown + (d.unknown === 1 ? " is" : " are") + " counted only because the master does not know the data that the target asks for. "),
        h("span", { class: "data" }, d.ids.slice(0, 12).join(", ") + (d.matched > 12 ? " \u2026" : "")));
    } catch (e) {
      if (!over && n === asked) fill(matches, e.message);
    }
  };
  const describe = async () => {
    fill(doc);
    if (!user.may["runner.fleet.functions"] || !/^\w+\.\w+$/.test(fun.value)) return;
    const name = fun.value;
    try {
      const d = await look("functions", { name });
      if (over || fun.value !== name) return;
      const spec = (d.argspec || {})[name], text = (d.doc || {})[name];
      if (!spec && !text) {
        fill(doc, h("p", { class: "quiet" }, "Brine has no function of this name; a module of yours may have it."));
        return;
      }
      const defaults = (spec && spec.defaults) || [];
      const params = ((spec && spec.args) || []).map((a, i, l) => {
        const k = i - (l.length - defaults.length);
        return k >= 0 ? a + "=" + JSON.stringify(defaults[k]) : a;
      });
      fill(doc, h("p", { class: "data" }, name + " " + params.join(" ")), text && h("pre", { class: "data" }, text));
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
  args.addEventListener("input", line);
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
    describe();
  };
  fill(main, h("h1", {}, "Run"), user.commands ? null : h("p", { class: "error" }, status("failed", "Your permissions include no function of minions.")),
    h("form", { on: { submit: start }, class: "card" },
      h("div", { class: "fields" }, h("div", {}, h("label", { for: "tgt_type" }, "Target type"), type), h("div", { class: "grow" }, h("label", { for: "tgt" }, "Target"), tgt)), build.box,
      savedBox("target", user, targetNow, takeTarget), matches,
      h("div", { class: "fields" }, h("div", { class: "grow" }, h("label", { for: "fun" }, "Function"), fun, names),
        h("div", { class: "grow" }, h("label", { for: "args" }, "Arguments, as on a command line"), args)),
      h("div", { class: "fields" }, h("div", {}, h("label", { for: "batch" }, "Minions at a time (number or %)"), batch), h("div", {}, h("label", { for: "timeout" }, "Timeout in seconds"), timeout), first, button),
      savedBox("job", user, () => ({ ...targetNow(), fun: fun.value, args: args.value, ...(batch.value ? { batch: batch.value } : {}), ...(timeout.value ? { timeout: timeout.value } : {}) }), takeJob),
      error, h("p", { class: "quiet" }, "The same on the command line, and for the REST API:"), shell, curl), doc);
  if (draft && draft.jid === query.get("job")) takeJob({ ...draft, args: asLine(draft.arg) });
  draft = null;
  line();
  preview();
  describe();
  if (user.may["runner.fleet.functions"]) {
    look("functions").then((all) => { if (!over) fill(names, all.map((f) => h("option", { value: f }))); }, () => {});
  }
  return () => { over = true; clearTimeout(due); clearTimeout(docDue); };
}
