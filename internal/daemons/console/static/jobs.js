import { h, fill, table, row, status, say, ask, save } from "./dom.js";
import { look, write } from "./api.js";
import { store, watch } from "./store.js";
import { result } from "./result.js";
import { matrix, again, difference, readable } from "./matrix.js";
import { address, plain } from "./text.js";
import { viewBox } from "./saved.js";
import { comparison, earlier } from "./compare.js";
import { asLine, handOver } from "./run.js";

const funs = (fun) => (Array.isArray(fun) ? fun.join(", ") : plain(fun));

// argsOf writes the arguments of a job as on a command line; null stands for those that are too large.
const argsOf = (j) => (Array.isArray(j.arg) ? asLine(j.arg) : j.arg === null || j.arg === undefined ? "" : plain(j.arg));

// spoken is a job as a sentence, for users of screen readers.
function spoken(j, minions, returned, failed) {
  const args = argsOf(j).slice(0, 100);
  return funs(j.fun) + (args ? " with " + args : "") + " on " + plain(j.tgt).slice(0, 100) + (j.user ? ", by " + j.user : "") + ": " + returned + " of " + minions + " minions returned, " +
    (failed > 0 ? failed + " failed" : "none failed");
}

// jobRows is the table of jobs.
export function jobRows(rows) {
  if (rows.length === 0) return h("p", { class: "quiet" }, "There are no jobs.");
  return table("Jobs", ["Started", "Function", "Arguments", "Target", "User", "Result"], rows.map((j) => row([
    h("a", { href: "#/jobs/" + address(j.jid), "aria-label": (j.time || j.jid) + ": " + spoken(j, j.minions, j.returned, j.failed) }, j.time || j.jid), funs(j.fun), h("span", { class: "data" }, argsOf(j).slice(0, 200)),
    plain(j.tgt).slice(0, 200), [j.user || "", j.approved_by && h("div", { class: "quiet" }, "approved by " + j.approved_by)], jobStatus(j)], { "data-jid": j.jid })));
}

function jobStatus(j) {
  if (j.failed > 0) return status("failed", j.failed + " of " + j.minions + " failed");
  if (j.returned < j.minions) return status("waiting", j.returned + " of " + j.minions + " returned");
  return status("ok", j.minions + " returned");
}

// jobs lists the newest jobs.
export function jobs(main, { query, user }) {
  const list = h("div", { id: "list" }), error = h("p", { class: "error" }), more = h("div", { class: "fields" });
  const fun = h("input", { id: "f-fun", class: "filter", value: query.get("fun") || "", placeholder: "state.*" });
  const by = h("input", { id: "f-user", value: query.get("user") || "" });
  let over = false, asked = 0, before = "";
  const own = () => fill(list, jobRows([...store.jobs].filter(([, j]) => j.about).reverse().map(([jid, j]) => ({ jid, fun: j.about.fun, arg: j.about.arg, tgt: j.about.tgt,
    user: j.about.user, minions: (j.about.minions || []).length, returned: j.results.size, failed: [...j.results.values()].filter((r) => r.failed).length }))));
  const load = async () => {
    if (!user.may["runner.fleet.jobs"]) { own(); return; }
    const n = ++asked;
    try {
      const d = await look("jobs", { fun: fun.value || "*", user: by.value || "*", before });
      if (over || n !== asked) return;
      fill(error);
      fill(list, jobRows(d.rows));
      fill(more, before && h("button", { type: "button", on: { click: () => { before = ""; load(); } } }, "Newest"),
        d.more && h("button", { type: "button", on: { click: () => { before = d.rows[d.rows.length - 1].jid; load(); } } }, "Older"));
    } catch (e) {
      if (!over) fill(error, e.message);
    }
  };
  let typing, due = null;
  for (const f of [fun, by]) f.addEventListener("input", () => { clearTimeout(typing); before = ""; typing = setTimeout(load, 300); });
  fill(main, h("h1", {}, "Jobs"), error, user.may["runner.fleet.jobs"] ? h("div", { class: "fields" },
    h("div", { class: "grow" }, h("label", { for: "f-fun" }, "Function (pattern)"), fun), h("div", {}, h("label", { for: "f-user" }, "User (pattern)"), by),
    viewBox("jobs", user, () => ({ fun: fun.value, user: by.value }))) :
    h("p", { class: "quiet" }, "Your own jobs since you opened this page. To see others you need the permission for the runner fleet.jobs."), list, more);
  load();
  const end = watch("jobs", () => {
    if (due || before) return;
    due = setTimeout(() => { due = null; load(); }, 700);
  });
  return () => { over = true; clearTimeout(typing); clearTimeout(due); end(); };
}

const maxRows = 500;
const sayEvery = 10000; // milliseconds between what screen readers hear of a job that runs

// job shows one job, and the results of minions as they arrive.
export function job(main, { part: jid, query, user }) {
  const about = h("div", { class: "card" }), bar = h("progress", { "aria-label": "Minions that have returned" }), counts = h("p", { id: "counts" });
  const list = h("div", { id: "results" }), error = h("p", { class: "error" }), groups = h("div", {});
  const only = h("select", { id: "f-only", on: { change: () => draw(true) } }, ["all", "failed", "returned", "waiting"].map((o) => h("option", { value: o }, o)));
  const results = new Map(); // by minion
  const shown = new Map(); // by minion: {row, of}
  let ids = [], over = false, body = null, told = -1, saidAt = 0, described = null;

  // What can be done with the job. The elements stay while results arrive, so that they keep the focus.
  let job = null; // what was run
  const offered = (word, ids) => h("a", { href: "#/run?job=" + address(jid), hidden: true, "data-again": word, on: { click: () => handOver(jid, { ...job, ...(ids ? { tgt: ids(), tgt_type: "list" } : {}) }) } });
  const failures = () => ids.filter((id) => (results.get(id) || {}).failed), missing = () => ids.filter((id) => !results.has(id));
  const whole = offered("all"), onFailed = offered("failed", failures), onMissing = offered("missing", missing), done = h("p", { role: "status" });
  const kill = h("button", { type: "button", class: "danger", id: "kill", hidden: true, on: { click: async () => {
    const tgt = missing();
    if (!await ask("Kill a job", h("p", {}, "This kills the job on " + tgt.length + (tgt.length === 1 ? " minion" : " minions") + " without a return."), "Kill", true)) return;
    try {
      const got = await write("jobs", { tgt, tgt_type: "list", fun: "saltutil.kill_job", arg: [jid] });
      fill(done, "The minions are asked to kill it: ", h("a", { href: "#/jobs/" + address(got.jid) }, got.jid));
    } catch (e) {
      fill(done, h("span", { class: "error" }, e.message));
    }
  } } }, "Kill");
  // Returns that are too large for the page are left out.
  const asJSON = h("button", { type: "button", id: "save-json", hidden: true, on: { click: () => save(jid + ".json", "application/json",
    JSON.stringify(Object.fromEntries(ids.filter((id) => results.has(id) && !results.get(id).cut).map((id) => [id, results.get(id).return])), null, 2) + "\n") } }, "Save the returns as JSON");
  const offer = () => {
    asJSON.hidden = results.size === 0;
    if (!user.commands || !job) return;
    const failed = failures().length, open = missing().length;
    for (const [e, shown, text] of [[whole, true, "Run it again"], [onFailed, failed > 0, "Run it again on the failed (" + failed + ")"],
      [onMissing, open > 0, "Run it on those without a return (" + open + ")"], [kill, open > 0, "Kill"]]) {
      e.hidden = !shown;
      if (e.textContent !== text) e.textContent = text;
    }
  };

  const describe = (d) => { described = d; job = typeof d.fun === "string" ? { tgt: d.tgt, tgt_type: d.tgt_type, fun: d.fun, arg: Array.isArray(d.arg) ? d.arg : [] } : null; fill(about, h("p", {}, h("strong", { class: "data" }, funs(d.fun)), " ", h("span", { class: "data" }, argsOf(d).slice(0, 2000))),
    h("p", { class: "quiet" }, "Target ", h("span", { class: "data" }, plain(d.tgt).slice(0, 500)), " (" + (d.tgt_type || "glob") + "), by " + (d.user || "unknown") + (d.approved_by ? ", approved by " + d.approved_by : "") + (d.time ? ", " + d.time : "")),
    h("p", { class: "quiet data" }, jid),
    user.may["runner.fleet.jobs"] && user.may["runner.fleet.compare"] && typeof d.fun === "string" && earlier(jid, d.fun)); };

  const statusOf = (r) => {
    if (!r) return status("waiting", "no return yet");
    const s = r.states;
    const text = s ? [[s.failed, "failed"], [s.unknown, "would change"], [s.changed, "changed"], [s.ok, "in order"]].filter(([n]) => n > 0).map(([n, w]) => n + " " + w).join(", ") : r.failed ? "failed" : "returned";
    return status(r.failed ? "failed" : s && s.unknown ? "waiting" : s && s.changed ? "changed" : "ok", text);
  };
  const wanted = (id) => {
    const r = results.get(id);
    return only.value === "all" || (only.value === "failed" && r && r.failed) || (only.value === "returned" && r) || (only.value === "waiting" && !r);
  };
  const content = (id, r) => {
    if (!r) return "";
    if (!r.cut) return result(r.return);
    const place = h("div", {});
    fill(place, user.may["runner.fleet.result"] ? h("button", { type: "button", on: { click: async () => {
      try {
        const whole = await look("result", { jid, id });
        fill(place, whole.cut ? h("p", { class: "cut" }, "The return is larger than the console shows: salt-run jobs.lookup_jid " + jid) : result(whole.return));
      } catch (e) {
        fill(place, h("p", { class: "error" }, e.message));
      }
    } } }, "Show the return") : h("p", { class: "cut" }, "The return is large and not shown."));
    return place;
  };
  const lineOf = (id, r) => row([h("a", { href: "#/minions/" + address(id) }, id), statusOf(r), content(id, r)], { "data-id": id });

  const draw = (all) => {
    const returned = ids.filter((id) => results.has(id)).length, failed = ids.filter((id) => (results.get(id) || {}).failed).length;
    bar.max = Math.max(ids.length, 1);
    bar.value = returned;
    const text = returned + " of " + ids.length + " minions returned" + (failed > 0 ? ", " + failed + " failed" : "");
    fill(counts, text);
    offer();
    // Screen readers hear how it goes, but not each return.
    const done = returned === ids.length;
    if (ids.length > 0 && returned !== told && (done || Date.now() - saidAt > sayEvery)) {
      say(described && (done || told < 0) ? spoken(described, ids.length, returned, failed) : text);
      saidAt = Date.now();
    }
    told = returned;
    // Failures come first, then results, then those that have not returned.
    const rank = (id) => (results.has(id) ? (results.get(id).failed ? 0 : 1) : 2);
    const rows = ids.filter(wanted).sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
    if (all || !body) {
      shown.clear();
      const t = table("Results", ["Minion", "Status", "Return"], []);
      body = t.querySelector("tbody");
      fill(list, t);
    }
    const want = rows.slice(0, maxRows), keep = new Set(want);
    for (const [id, s] of shown) if (!keep.has(id)) { s.row.remove(); shown.delete(id); }
    want.forEach((id, i) => {
      const r = results.get(id);
      let s = shown.get(id);
      if (!s || s.of !== r) {
        const line = lineOf(id, r);
        if (s) s.row.replaceWith(line);
        s = { row: line, of: r };
        shown.set(id, s);
      }
      if (body.children[i] !== s.row) body.insertBefore(s.row, body.children[i] || null);
    });
    const restore = again(groups);
    const opened = [...groups.querySelectorAll("details[open]")].map((d) => d.id);
    fill(groups, rows.length > maxRows && h("p", { class: "cut" }, (rows.length - maxRows) + " more minions are not shown: choose failed or waiting."), sameAnswers(), matrix(ids, results));
    for (const d of groups.querySelectorAll("details")) if (opened.includes(d.id)) d.open = true;
    restore();
  };

  // sameAnswers tells how many minions gave equal answers, if there are several.
  const sameAnswers = () => {
    const by = new Map();
    for (const id of ids) {
      const r = results.get(id);
      if (!r || r.cut || r.states) continue;
      const key = JSON.stringify(r.return);
      by.set(key, [...(by.get(key) || []), id]);
    }
    if (by.size < 2 || by.size === results.size) return null;
    const all = [...by].sort((a, b) => b[1].length - a[1].length).slice(0, 10);
    // The others show what is different from the answer of most minions.
    const usual = readable(JSON.parse(all[0][0] ?? "null"));
    const answer = (k, i) => (i === 0 || all[0][1].length < 2 ? h("span", { class: "data" }, k.slice(0, 300)) : difference(usual, readable(JSON.parse(k))));
    return h("details", { class: "card", id: "equal" }, h("summary", {}, "Equal answers: " + all.map(([, l]) => l.length).join(", ")),
      table("Equal answers", [{ text: "Minions", number: true }, "Answer", "Ids"], all.map(([k, l], i) => row([h("td", { class: "number" }, l.length),
        answer(k, i), l.slice(0, 20).join(", ") + (l.length > 20 ? " \u2026" : "")]))));
  };

  const live = () => {
    const j = store.jobs.get(jid);
    if (!j) return;
    if (j.about) {
      if (!about.firstChild) describe(j.about);
      for (const id of Array.isArray(j.about.minions) ? j.about.minions : []) if (!ids.includes(id) && id !== "\u2026") ids.push(id);
    }
    for (const [id, r] of j.results) {
      if (!ids.includes(id)) ids.push(id);
      if (!results.has(id)) results.set(id, r);
    }
  };
  const load = async () => {
    if (user.may["runner.fleet.job"]) {
      try {
        const d = await look("job", { jid });
        if (over) return;
        describe(d);
        ids = d.minions;
        for (const [id, r] of Object.entries(d.results)) results.set(id, r);
      } catch (e) {
        if (over) return;
        if (!store.jobs.has(jid)) fill(error, e.message);
      }
    } else if (!store.jobs.has(jid)) {
      fill(error, "You can follow your own jobs here. To see others you need the permission for the runner fleet.job.");
    }
    live();
    draw(true);
  };
  fill(main, h("h1", {}, "Job"), error, about, query.get("against") && comparison(jid, query.get("against")), counts, bar, h("p", { class: "words", id: "acts" }, whole, onFailed, onMissing, kill, asJSON), done, h("div", { class: "fields" }, h("div", {}, h("label", { for: "f-only" }, "Show"), only)), groups, list);
  load();
  let reading = null;
  const ends = [watch("jobs", () => { live(); draw(false); }),
    // Events were left out: the master has the results.
    watch("skipped", () => { clearTimeout(reading); reading = setTimeout(load, 1000); })];
  return () => { over = true; clearTimeout(reading); ends.forEach((end) => end()); };
}
