// Schedules that users save on the master, and give to minions. Names and data may come from other users.

import { h, fill, table, row, status, ask, say } from "./dom.js";
import { read, look, remove, write } from "./api.js";
import { store } from "./store.js";
import { types } from "./run.js";
import { quoted, words } from "./words.js";
import { address, date, plain } from "./text.js";

const units = { seconds: "every … seconds", minutes: "every … minutes", hours: "every … hours", days: "every … days", cron: "by a cron expression", when: "at a time of day or date", once: "once, at a time" };
const intervals = ["seconds", "minutes", "hours", "days"];

// keywords are the parts of an entry that schedule.add takes under the same name.
const keywords = [...Object.keys(units), "function", "splay", "range", "skip_during_range", "until", "after", "run_on_start", "maxrunning", "jid_include", "enabled", "return_job", "metadata"];

const known = (d) => (d && typeof d === "object" && !Array.isArray(d) ? d : {});

// typed reads a word as a number, a truth value, a list or a map where it looks like one.
function typed(word) {
  if (/^(true|false)$/i.test(word)) return word.toLowerCase() === "true";
  if (/^(null|none)$/i.test(word)) return null;
  if (!/^[-[{"\d]/.test(word)) return word;
  try { return JSON.parse(word); } catch { return word; }
}

// untyped writes a value so that typed reads it again.
const untyped = (v) => (typeof v === "string" && typed(v) === v ? v : JSON.stringify(v));

// given splits the arguments of a command line into those by place and those by name.
export function given(line) {
  const args = [], kwargs = {};
  for (const w of words(line)) {
    const [, name, text] = /^([A-Za-z_]\w*)=(.*)$/s.exec(w) || [];
    if (name && !name.startsWith("__")) kwargs[name] = typed(text);
    else args.push(typed(w));
  }
  return { args, kwargs };
}

// lineOf writes the arguments of an entry as on a command line.
const lineOf = (s) => [...(Array.isArray(s.args) ? s.args : []).map((a) => quoted(untyped(a))), ...Object.entries(known(s.kwargs)).map(([k, v]) => quoted(k + "=" + untyped(v)))].join(" ");

// rule says when an entry runs.
const rule = (s) => {
  const every = intervals.filter((u) => s[u] !== undefined && s[u] !== null).map((u) => plain(s[u]) + " " + u);
  return [every.length > 0 && "every " + every.join(", "), s.cron && "cron " + plain(s.cron), s.when && "at " + plain(s.when), s.once && "once at " + plain(s.once)].filter(Boolean).join(", ");
};

// waits are the pauses in milliseconds after which the answers to a job are read again.
const waits = [200, 300, 500, 1000, 1000, 2000, 3000, 4000, 6000, 10000, 20000];

// some writes as many names as a record has place for.
function some(names) {
  const out = [];
  for (const n of names) if (out.join().length + n.length < 400) out.push(n);
  return out;
}

const named = (names, count) => names.map((n) => plain(n)).join(", ") + (count > names.length ? " and " + (count - names.length) + " more" : "");

// givenOf is the part of a record that says which job gave its entry to minions, or took it from them, and who has not done it.
// A change of the entry leaves it out.
function givenOf(s) {
  const g = known(known(s.data).given);
  const missing = Array.isArray(g.missing) ? g.missing : [];
  return { jid: typeof g.jid === "string" ? g.jid : "", minions: Number(g.minions) || 0, missing, count: Math.max(Number(g.count) || 0, missing.length), removed: g.removed === true };
}

function givenStatus(s) {
  const g = givenOf(s);
  if (!g.jid) return h("div", { class: "given" }, status("waiting", "on the master only"));
  const job = h("a", { href: "#/jobs/" + address(g.jid) }, g.count > 0 ? "the job" : g.removed ? "removed from " + g.minions + " minions" : "given to " + g.minions + (g.minions === 1 ? " minion" : " minions"));
  return h("div", { class: "given" }, g.count > 0 && [status("failed", (g.removed ? "not removed from " : "not given to ") + named(g.missing, g.count)), " "], job);
}

// savedSchedules shows the saved schedules with a form, null without the permission.
export function savedSchedules(user) {
  if (!user.may["runner.saved.list"]) return null;
  const list = h("div", { id: "saved-schedules" }), progress = h("p", { class: "quiet", role: "status", id: "s-progress" }), error = h("p", { class: "error", role: "alert", id: "saved-error" });
  const field = (id, props) => h("input", { id: "s-" + id, spellcheck: "false", autocapitalize: "none", autocomplete: "off", ...props });
  const name = field("name", { required: true, maxlength: 100 }), tgt = field("tgt", { required: true, value: "*" }), fun = field("fun", { required: true, list: "s-functions" }), args = field("args");
  const type = h("select", { id: "s-tgt_type" }, types.map((t) => h("option", { value: t }, t)));
  const unit = h("select", { id: "s-unit" }, Object.entries(units).map(([v, t]) => h("option", { value: v }, t)));
  const time = field("time", { required: true }), enabled = h("input", { type: "checkbox", id: "s-enabled", checked: true }), open = h("input", { type: "checkbox", id: "s-public" });
  const names = h("datalist", { id: "s-functions" }), title = h("h3", { id: "s-title" }), put = user.may["runner.saved.put"];
  let over = false, old = null, ran = new Map(), all = [];

  // entry is the schedule of the form: what the form does not show stays as it was.
  const entry = () => {
    const s = { ...(old ? known(old.data.schedule) : {}) };
    if (!old || args.value !== lineOf(s)) {
      const a = given(args.value);
      delete s.args;
      delete s.kwargs;
      if (a.args.length > 0) s.args = a.args;
      if (Object.keys(a.kwargs).length > 0) s.kwargs = a.kwargs;
    }
    s.function = fun.value.trim();
    s.enabled = enabled.checked;
    if (!old || unit.value !== unitOf(s) || time.value !== timeOf(s)) {
      for (const u of Object.keys(units)) delete s[u];
      s[unit.value] = intervals.includes(unit.value) ? Number(time.value) : time.value.trim();
    }
    return s;
  };
  const unitOf = (s) => Object.keys(units).find((u) => s[u] !== undefined && s[u] !== null) || "hours";
  const timeOf = (s) => { const v = s[unitOf(s)]; return v === undefined || v === null ? "" : plain(v); };
  const numeric = () => { time.type = intervals.includes(unit.value) ? "number" : "text"; time.min = "1"; };
  const show = (s) => {
    old = s;
    const d = s ? known(s.data) : {}, e = known(d.schedule);
    fill(title, s ? "Change " + s.name : "A new schedule");
    name.value = s ? s.name : "";
    tgt.value = s ? (Array.isArray(d.tgt) ? d.tgt.join(",") : String(d.tgt ?? "*")) : "*";
    type.value = types.includes(d.tgt_type) ? d.tgt_type : "glob";
    fun.value = String(e.function ?? "");
    args.value = lineOf(e);
    unit.value = unitOf(e);
    numeric();
    time.value = timeOf(e);
    enabled.checked = e.enabled !== false;
    open.checked = Boolean(s && s.public);
  };
  const save = async (of, data, to) => {
    fill(error);
    try {
      await write("saved", { kind: "schedule", name: of, public: to, data });
      if (over) return false;
      await load();
      return true;
    } catch (e) {
      if (!over) fill(error, e.message);
      return false;
    }
  };
  const submit = async (e) => {
    e.preventDefault();
    let data;
    try {
      data = { tgt: tgt.value, tgt_type: type.value, schedule: entry() };
    } catch (x) {
      fill(error, x.message);
      return;
    }
    const before = old, to = name.value.trim(), mine = before && before.own;
    if (!await save(to, data, open.checked)) return;
    if (mine && before.name !== to) await drop(before);
    form.hidden = true;
    add.focus();
    say("Saved.");
    if (!mine || !user.commands) return;
    if (before.name !== to || JSON.stringify([known(before.data).tgt, known(before.data).tgt_type]) !== JSON.stringify([data.tgt, data.tgt_type])) await send(before, true);
    await offer(to);
  };
  // offer asks whether minions get the changed entry at once.
  const offer = async (of) => {
    const s = all.find((x) => x.own && x.name === of);
    if (s && user.commands && !over) await send(s, false, "It is saved on the master. Minions that have it go on with what they have until they get the change. ");
  };
  const drop = async (s) => {
    try {
      await remove("saved/" + address(s.id));
      if (!over) await load();
    } catch (e) {
      if (!over) fill(error, e.message);
    }
  };
  const turn = async (s) => {
    const e = known(s.data.schedule), on = e.enabled === false;
    const data = { ...s.data, schedule: { ...e, enabled: on } };
    delete data.given;
    if (!await save(s.name, data, s.public)) return;
    say(on ? "Enabled." : "Disabled.");
    await offer(s.name);
  };
  // answers reads which minions have done a job, and which not.
  const answers = async (jid, take) => {
    let ids = [], results = {};
    if (user.may["runner.fleet.job"]) {
      try {
        const d = await look("job", { jid });
        ids = d.minions;
        results = { ...d.results };
      } catch { /* the stream may know it */ }
    }
    const j = store.jobs.get(jid);
    if (j) {
      for (const id of j.about && Array.isArray(j.about.minions) ? j.about.minions : []) if (!ids.includes(id) && id !== "\u2026") ids.push(id);
      for (const [id, r] of j.results) {
        if (!ids.includes(id)) ids.push(id);
        if (!Object.hasOwn(results, id)) results[id] = r;
      }
    }
    const done = (r) => (take || r.cut ? !r.failed : known(known(r.return)["schedule.add"]).result === true);
    const missing = ids.filter((id) => !Object.hasOwn(results, id) || !done(results[id]));
    return { minions: ids.length, missing };
  };
  // note stores who has done a job, unless the entry has changed since then.
  const note = async (s, jid, take, got) => {
    const now = all.find((x) => x.id === s.id);
    if (!now || !now.own || !put || entryOf(now) !== entryOf(s)) return;
    const given = { jid, minions: got.minions, missing: some(got.missing), count: got.missing.length, removed: take };
    await save(now.name, { ...now.data, given }, now.public);
  };
  const entryOf = (s) => JSON.stringify([s.name, known(s.data).tgt, known(s.data).tgt_type, known(s.data).schedule]);
  // follow shows the answers to a job as they arrive.
  const follow = async (s, jid, take) => {
    let noted = "";
    for (const wait of waits) {
      await new Promise((r) => setTimeout(r, wait));
      if (over) return;
      const got = await answers(jid, take);
      if (over) return;
      const text = s.name + (take ? ": removed from " : ": given to ") + (got.minions - got.missing.length) + " of " + got.minions + " minions. ";
      fill(progress, text, got.missing.length > 0 && "Not yet: " + named(some(got.missing), got.missing.length) + ". They go on with what they have. ", h("a", { href: "#/jobs/" + address(jid) }, "The job"));
      const state = got.minions > 0 ? JSON.stringify(got) : "";
      if (state && state !== noted) await note(s, jid, take, got);
      noted = state;
      if (state && got.missing.length === 0) return;
    }
  };
  // check reads the answers to earlier jobs that minions had not done.
  const check = async () => {
    for (const s of all.filter((x) => x.own && givenOf(x).count > 0).slice(0, 20)) {
      const g = givenOf(s), got = await answers(g.jid, g.removed);
      if (over) return;
      if (got.minions >= g.minions && got.missing.length < g.count) await note(s, g.jid, g.removed, got);
    }
  };
  // send gives an entry to its minions in place of one with its name, or takes it from them.
  const send = async (s, take, why) => {
    const d = known(s.data), e = known(d.schedule), target = Array.isArray(d.tgt) ? d.tgt.join(",") : String(d.tgt ?? "");
    const what = h("p", {}, why, take ? "Remove " : "Give ", h("strong", { class: "data" }, s.name), take ? " from the minions that match " : " to the minions that match ", h("strong", { class: "data" }, target), "?");
    if (!await ask(take ? "Remove from minions" : "Give to minions", what, take ? "Remove" : "Give", take, why && "Not now")) return;
    const kw = { __kwarg__: true };
    for (const k of keywords) if (Object.hasOwn(e, k)) kw[k] = e[k];
    if (Array.isArray(e.args)) kw.job_args = e.args;
    if (Object.hasOwn(e, "kwargs")) kw.job_kwargs = known(e.kwargs);
    const job = { tgt: d.tgt, tgt_type: types.includes(d.tgt_type) ? d.tgt_type : "glob" };
    Object.assign(job, take ? { fun: "schedule.delete", arg: [s.name] } : { fun: ["schedule.delete", "schedule.add"], arg: [[s.name], [s.name, kw]] });
    try {
      const got = await write("jobs", job);
      if (got.approval) location.hash = "#/approvals";
      else if (!over) follow(s, got.jid, Boolean(take));
    } catch (x) {
      if (!over) fill(error, x.status === 404 ? "No minion matches the target." : x.message);
    }
  };
  const button = (s, cls, text, click, danger) => h("button", { type: "button", class: cls + (danger ? " danger" : ""), "aria-label": text + ": " + s.name, on: { click } }, text);
  const edit = (s) => { show(s); form.hidden = false; name.focus(); form.scrollIntoView({ block: "nearest" }); };
  const draw = () => {
    fill(list, all.length === 0 ? h("p", { class: "quiet" }, "Nothing is saved.") :
      table("Saved schedules", ["Name", "Target", "Function", "When", "State", "Last run", "Next run", "Actions"], all.map((s) => {
        const d = known(s.data), e = known(d.schedule), of = ran.get(s.name) || { minions: 0 }, next = s.next || of.next;
        const may = s.own ? user.may["runner.saved.remove"] : user.may["runner.saved.remove_any"];
        return row([[h("span", { class: "data" }, s.name), h("div", { class: "quiet" }, s.own ? (s.public ? "for all" : "") : "by " + s.owner)], h("span", { class: "data" }, plain(d.tgt ?? "")),
          h("span", { class: "data" }, [plain(e.function ?? ""), " ", lineOf(e)].join("").slice(0, 300)), rule(e), [e.enabled === false ? status("offline", "disabled") : status("ok", "enabled"), givenStatus(s)],
          of.last ? [h("a", { href: "#/jobs/" + address(of.last.jid) }, plain(of.last.time)), h("div", { class: "quiet" }, of.minions + (of.minions === 1 ? " minion has it" : " minions have it"))] : of.minions ? of.minions + " minions have it" : "",
          next && e.enabled !== false ? date(next) || plain(next) : "",
          h("div", { class: "tools" }, put && s.own && [button(s, "edit", "Edit", () => edit(s)), button(s, "turn", e.enabled === false ? "Enable" : "Disable", () => turn(s))],
            user.commands && [button(s, "give", "Give to minions", () => send(s, false)), button(s, "take", "Remove from minions", () => send(s, true))],
            may && button(s, "drop", "Delete", async () => { if (await ask("Delete", h("p", {}, "Delete the saved schedule ", h("strong", { class: "data" }, s.name), "? Minions that have it keep it."), "Delete", true)) { await drop(s); say("Deleted."); } }, true))],
        { "data-saved": s.name });
      })));
  };
  const load = async () => {
    try {
      const got = (await read("saved?kind=schedule")).saved;
      if (over) return;
      all = got;
      draw();
    } catch (e) {
      if (!over) fill(error, e.message);
    }
  };
  // seen takes what is known of the schedules of minions: how many have each name, its last run and the next one.
  const seen = (rows) => {
    ran = new Map();
    for (const r of rows) {
      const of = ran.get(r.name) || { minions: 0 };
      of.minions++;
      if (r.last && (!of.last || r.last.jid > of.last.jid)) of.last = r.last;
      if (r.next && (!of.next || r.next < of.next)) of.next = r.next;
      ran.set(r.name, of);
    }
    draw();
  };
  const add = h("button", { type: "button", id: "s-new", on: { click: () => edit(null) } }, "New schedule\u2026");
  unit.addEventListener("change", () => { numeric(); time.value = ""; });
  const labelled = (id, text, input, grow) => h("div", { class: grow ? "grow" : null }, h("label", { for: "s-" + id }, text), input);
  const form = h("form", { class: "card", hidden: true, id: "s-form", "aria-labelledby": "s-title", on: { submit } }, title,
    h("div", { class: "fields" }, labelled("name", "Name", name, true), labelled("tgt_type", "Target type", type), labelled("tgt", "Target", tgt, true)),
    h("div", { class: "fields" }, labelled("fun", "Function", fun, true), labelled("args", "Arguments, as on a command line", args, true), names),
    h("div", { class: "fields" }, labelled("unit", "When", unit), labelled("time", "Number or time", time), h("label", { class: "check" }, enabled, " Enabled"),
      user.may["runner.saved.put_public"] && h("label", { class: "check" }, open, " All users see it"),
      h("button", { type: "submit", class: "main", id: "s-save" }, "Save"), h("button", { type: "button", id: "s-cancel", on: { click: () => { form.hidden = true; add.focus(); } } }, "Cancel")));
  form.addEventListener("keydown", (e) => { if (e.key !== "Escape") return; e.stopPropagation(); form.hidden = true; add.focus(); });
  load().then(() => { if (!over && put) check(); });
  if (user.may["runner.fleet.schedules"]) read("schedules?limit=1000").then((d) => { if (!over) seen(d.rows); }, () => {});
  if (put && user.may["runner.fleet.functions"]) look("functions").then((list) => { if (!over) fill(names, list.map((f) => h("option", { value: f }))); }, () => {});
  return { box: h("section", {}, h("h2", {}, "Saved schedules"), h("p", { class: "quiet" }, "They are stored on the master. Minions have them, and changes to them, when they are given to the minions."), error, progress, put && h("div", { class: "fields" }, add), form, list),
    end: () => { over = true; } };
}
