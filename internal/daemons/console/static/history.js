// The history of runs of states: how many there were on each day, the runs of a day, and those of a
// minion. The master keeps it; nothing is sent to minions.

import { h, fill, status, table, row } from "./dom.js";
import { look } from "./api.js";
import { address, date } from "./text.js";

const kinds = { failed: "failed", drift: "waiting", changed: "changed", clean: "ok" };
const words = { failed: "failed", drift: "would change", changed: "changed", clean: "in order" };
const outcomes = Object.keys(kinds); // the worst first
const spans = [7, 30, 90, 365], pageSize = 100;

const total = (d) => outcomes.reduce((n, o) => n + d[o], 0);
const seconds = (ms) => (ms / 1000).toFixed(ms < 10000 ? 2 : 0) + " s";

// chart draws bars of parts, each a list of [kind, size]. text is what it shows, for those who do not see it.
function chart(id, text, bars) {
  const most = Math.max(1, ...bars.map((b) => b.reduce((n, [, size]) => n + size, 0)));
  const rects = bars.flatMap((b, i) => {
    let y = 100;
    return b.filter(([, size]) => size > 0).map(([kind, size]) => {
      const high = Math.min(Math.max((100 * size) / most, 2), y); // a part that is small is seen, too
      y -= high;
      return h("rect", { class: kind, x: 10 * i + 1, y, width: 8, height: high });
    });
  });
  return h("svg", { class: "chart", id, viewBox: "0 0 " + 10 * Math.max(bars.length, 1) + " 100", preserveAspectRatio: "none", role: "img", "aria-label": text }, rects);
}

const legend = () => h("p", { class: "words legend-line" }, outcomes.map((o) => status(kinds[o], words[o])));

// source says whose runs these are.
const source = (d) => [d.problem && h("p", { class: "error" }, d.problem),
  h("p", { class: "quiet" }, d.source === "console_store" ? "From the console_store." : "From this master.")];

const choiceOf = (outcome) => {
  const e = h("select", { id: "f-outcome" }, [["", "all"], ...outcomes.map((o) => [o, words[o]])].map(([v, t]) => h("option", { value: v }, t)));
  e.value = outcomes.includes(outcome) ? outcome : "";
  return e;
};

// counts shows the numbers of states of a run.
const counts = (r) => [r.broken && status("failed", "ended before any state"), [["failed", r.failed, "failed"], ["waiting", r.would_change, "would change"],
  ["changed", r.changed, "changed"], ["ok", r.ok, "in order"]].filter(([, n]) => n > 0).map(([k, n, w]) => [status(k, n + " " + w), " "])];

const runRow = (r, minion) => row([minion && h("a", { href: "#/history/" + address(r.id) }, r.id), h("a", { href: "#/jobs/" + address(r.jid) }, date(r.time) || r.jid),
  h("span", { class: "data" }, r.fun + " " + (r.mods || []).join(",") + (r.test ? " test=True" : "")), status(kinds[r.outcome] || "waiting", words[r.outcome] || r.outcome), h("span", { class: "words" }, counts(r)),
  h("td", { class: "number" }, seconds(r.ms))].filter((c) => c !== undefined && c !== false), { "data-jid": r.jid, "data-outcome": r.outcome });

// runsPage shows a list of runs in pages: those of a minion, or those of a day.
function runsPage(main, { query, user }, title, here, fun, args, minion) {
  const list = h("div", { id: "list" }), error = h("p", { class: "error", role: "alert" }), about = h("div", {}), drawn = h("div", {}), more = h("div", { class: "fields" });
  const outcome = choiceOf(query.get("outcome") || "");
  let over = false, asked = 0, rows = [], next = "";
  const draw = () => {
    fill(list, rows.length === 0 ? h("p", { class: "quiet" }, "No run of states is known.") :
      table("Runs of states", [minion && "Minion", "Time", "Function", "Outcome", "States", { text: "Duration", number: true }].filter(Boolean), rows.map((r) => runRow(r, minion))));
    fill(more, next && h("button", { type: "button", id: "more", on: { click: () => load(true) } }, "More"));
    const shown = minion ? [] : rows.slice(0, 100).reverse();
    fill(drawn, shown.length > 1 && [h("h2", {}, "Duration of these runs"), h("div", { class: "card" },
      chart("durations", "Durations of " + shown.length + " runs, from " + date(shown[0].time) + " to " + date(shown.at(-1).time) + ", up to " + seconds(Math.max(...shown.map((r) => r.ms))), shown.map((r) => [[r.outcome, r.ms]])),
      h("p", { class: "ends" }, h("span", {}, date(shown[0].time)), h("span", {}, date(shown.at(-1).time))), legend())]);
  };
  const load = async (further) => {
    const n = ++asked;
    try {
      const d = await look(fun, { ...args, outcome: outcome.value, after: further ? next : "", limit: pageSize });
      if (over || n !== asked) return;
      rows = further ? [...rows, ...d.rows].slice(-1000) : d.rows;
      next = d.next;
      fill(error);
      fill(about, source(d));
      draw();
    } catch (e) {
      if (!over && n === asked) fill(error, e.message);
    }
  };
  outcome.addEventListener("change", () => {
    history.replaceState(null, "", here + (outcome.value ? (here.includes("?") ? "&" : "?") + "outcome=" + outcome.value : ""));
    load();
  });
  fill(main, h("h1", {}, title), error, h("p", { class: "words" }, h("a", { href: "#/history" }, "All days"), !minion && user.may["runner.fleet.minions"] && h("a", { href: "#/minions/" + address(args.id) }, "The minion")),
    h("div", { class: "fields" }, h("div", {}, h("label", { for: "f-outcome" }, "Outcome"), outcome), h("button", { type: "button", id: "again", on: { click: () => load() } }, "Read again")), about, drawn, list, more);
  load();
  return () => { over = true; };
}

// pastOf shows the runs of a minion.
export function pastOf(main, at) {
  return runsPage(main, at, "Runs of states of " + at.part, "#/history/" + address(at.part), "runs", { id: at.part }, false);
}

// past shows the days, or one of them.
export function past(main, at) {
  const day = at.query.get("day");
  if (day) return runsPage(main, at, "Runs of states on " + day + " (UTC)", "#/history?day=" + address(day), "history", { day }, true);
  const error = h("p", { class: "error", role: "alert" }), about = h("div", {}), drawn = h("div", { class: "card" }), list = h("div", { id: "list" });
  const span = h("select", { id: "f-days" }, spans.map((n) => h("option", { value: n }, n + " days")));
  span.value = spans.includes(Number(at.query.get("days"))) ? at.query.get("days") : "30";
  let over = false, asked = 0;
  const draw = (d) => {
    const known = new Map(d.days.map((x) => [x.day, x]));
    const last = Date.parse(d.today + "T00:00:00Z");
    const days = [...Array(d.asked)].map((_, i) => new Date(last - (d.asked - 1 - i) * 86400000).toISOString().slice(0, 10));
    const sum = (o) => d.days.reduce((n, x) => n + x[o], 0);
    const text = d.days.reduce((n, x) => n + total(x), 0) + " runs in " + d.asked + " days: " + outcomes.map((o) => sum(o) + " " + words[o]).join(", ");
    fill(drawn, chart("days", text, days.map((day) => outcomes.map((o) => [o, (known.get(day) || {})[o] || 0]))),
      h("p", { class: "ends" }, h("span", {}, days[0]), h("span", {}, days.at(-1))), legend(), h("p", { id: "sum" }, text + "."));
    const cell = (x, o) => h("td", { class: "number" }, x[o] > 0 && o === "failed" ? h("a", { class: "status failed", href: "#/history?day=" + address(x.day) + "&outcome=" + o }, x[o]) : x[o]);
    fill(list, d.days.length === 0 ? h("p", { class: "quiet" }, "No run of states in this time. Run state.apply, or schedule it with test=True to see drift.") :
      table("Runs of states by day", ["Day (UTC)", { text: "Runs", number: true }, ...outcomes.map((o) => ({ text: words[o][0].toUpperCase() + words[o].slice(1), number: true }))],
        [...d.days].reverse().map((x) => row([h("a", { href: "#/history?day=" + address(x.day) }, x.day), h("td", { class: "number" }, total(x)), ...outcomes.map((o) => cell(x, o))], { "data-day": x.day }))));
  };
  const load = async () => {
    const n = ++asked;
    try {
      const d = await look("history", { days: span.value });
      if (over || n !== asked) return;
      fill(error);
      fill(about, source(d));
      draw(d);
    } catch (e) {
      if (!over && n === asked) fill(error, e.message);
    }
  };
  span.addEventListener("change", () => { history.replaceState(null, "", "#/history?days=" + span.value); load(); });
  fill(main, h("h1", {}, "History of states"), h("p", { class: "quiet" }, "Each run of states counts once, by the worst that it did."), error,
    h("div", { class: "fields" }, h("div", {}, h("label", { for: "f-days" }, "Time"), span), h("button", { type: "button", id: "again", on: { click: load } }, "Read again")), drawn, about, list);
  load();
  return () => { over = true; };
}
