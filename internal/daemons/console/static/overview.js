import { h, fill, table, row, stateOf } from "./dom.js";
import { look } from "./api.js";
import { store, takeMoves, watch } from "./store.js";
import { address, date, recent } from "./text.js";

const shownMoves = 100, shownJobs = 50;
const readEvery = 60000; // milliseconds between two readings of the last runs of states

// bytes writes a size of memory.
const bytes = (n) => (n >= 1 << 30 ? (n / (1 << 30)).toFixed(1) + " GB" : Math.round(n / (1 << 20)) + " MB");

// busy shows how busy a master is: its process, its machine, its requests, and when it last said so.
function busy(l) {
  return l && h("div", { class: "quiet load" }, ["CPU " + l.cpu + " % of a core", "machine " + l.machine + " % of " + l.cores + (l.cores === 1 ? " core" : " cores"), "memory " + bytes(l.memory) + " of " + bytes(l.ram),
    l.requests.toFixed(1) + " requests a second" + (l.requests > 0 ? " in " + l.mean.toFixed(1) + " ms (95 %: " + l.most + " ms)" : ""), l.revision && "files " + l.revision.slice(0, 12), "heard " + recent(l.seen)].filter(Boolean).join(", "));
}

// overview shows the masters, which minions they command, and the last changes.
export function overview(main, { user }) {
  const cards = h("div", { class: "cards" }), band = h("div", { class: "band", id: "band" }), moves = h("div", { id: "moves" });
  const problem = h("p", { class: "error" }), first = h("p", { id: "first" });
  fill(main, h("h1", {}, "Overview"), problem, cards, first, h("h2", {}, "Masters and their minions"), h("div", { class: "card" }, band),
    h("h2", {}, "Changes of masters"), moves);

  let severities = {}; // number of minions by the severity of their last runs of states
  let jobs = 0; // of the newest ones: those that lack returns
  const bars = new Map(); // by master: the elements of its row
  const draw = () => {
    fill(problem, store.problem);
    const counts = { up: 0, down: 0, elsewhere: 0 };
    const held = new Map(), standby = new Map();
    for (const m of store.minions.values()) {
      counts[m.state]++;
      for (const name of m.by) held.set(name, (held.get(name) || 0) + 1);
      for (const name of m.standby || []) standby.set(name, (standby.get(name) || 0) + 1);
    }
    const card = (title, n, to) => h("div", { class: "card" }, h("div", { class: "figure" }, n), to ? h("a", { href: to }, title) : title);
    fill(cards, store.known ? [card("minions", store.minions.size, "#/minions"), card("connected", counts.up, "#/minions?state=up"),
      card("not connected", counts.down, "#/minions?state=down"), counts.elsewhere > 0 && card("at another master", counts.elsewhere, "#/minions?state=elsewhere"),
      card("masters", store.masters.length), [["failed", "last states failed"], ["not_returned", "states not returned"], ["drift", "would change (drift)"]].map(([s, text]) =>
        severities[s] > 0 && card(text, severities[s], "#/minions?severity=" + s)),
      store.waiting > 0 && card(store.waiting === 1 ? "key waits" : "keys wait", store.waiting, user.may["wheel.key.list_all"] ? "#/keys" : null), jobs > 0 && card("jobs without all returns", jobs, "#/jobs")] : h("p", { class: "quiet" }, "Waiting for the master."));
    // What to do while there is nothing to see.
    fill(first, store.known && store.minions.size === 0 && ["No minion is accepted. ", store.waiting > 0 ? ["Decide on ", h("a", { href: "#/keys" }, "the keys that wait"), "."] : ["Start a minion whose option master names this master: its key then waits on the page ", h("a", { href: "#/keys" }, "Keys"), "."]]);
    const names = new Set();
    for (const m of store.masters) {
      names.add(m.id);
      let b = bars.get(m.id);
      if (!b) {
        const bar = h("rect", { class: "held", x: 0, y: 4, height: 20, width: 0 });
        b = { bar, count: h("div", { class: "number count" }), id: h("div", { class: "id" }) };
        b.row = h("div", { class: "row", "data-master": m.id }, b.id,
          h("svg", { viewBox: "0 0 1000 28", preserveAspectRatio: "none", "aria-hidden": "true" }, h("rect", { class: "track", x: 0, y: 4, height: 20, width: 1000 }), bar),
          b.count);
        bars.set(m.id, b);
        band.append(b.row);
      }
      const n = held.get(m.id) || 0;
      b.row.className = "row " + m.state;
      b.row.dataset.count = n;
      b.bar.setAttribute("width", store.minions.size ? (1000 * n) / store.minions.size : 0);
      fill(b.count, h("a", { href: "#/minions?master=" + address(m.id) }, n));
      fill(b.id, h("strong", {}, m.id), m.here && " (this master)", h("br"), stateOf(m.state), (m.leads || (store.loads[m.id] || {}).leads) && " leads",
        m.draining && " draining", m.lag > 0 && " lacks " + m.lag + " changes", standby.get(m.id) && " standby of " + standby.get(m.id),
        h("div", { class: "quiet about" }, [m.version && "Brine " + m.version, m.since && "since " + date(m.since), m.seen && "answered " + recent(m.seen), m.zone && "zone " + m.zone].filter(Boolean).join(", ")),
        busy(store.loads[m.id]),
        m.problem && h("div", { class: "quiet" }, m.problem));
    }
    for (const [name, b] of bars) if (!names.has(name)) { b.row.remove(); bars.delete(name); }
  };
  const list = () => {
    if (store.moves.length === 0) {
      fill(moves, h("p", { class: "quiet" }, user.may["runner.fleet.moves"] ? "None." : "None since this page was opened."));
      return;
    }
    fill(moves, table("Changes of masters", ["Time", "Minion", "From", "To", "Reason", { text: "Seconds", number: true }],
      store.moves.slice(0, shownMoves).map((m) => row([recent(m.at), h("a", { href: "#/minions/" + address(m.id) }, m.id), m.from || "", m.to, m.reason || "",
        h("td", { class: "number" }, typeof m.seconds === "number" ? m.seconds.toFixed(3) : "")]))));
  };
  let over = false, timer = null;
  const read = async (fun, args, take) => {
    if (!user.may["runner.fleet." + fun]) return;
    try {
      const d = await look(fun, args);
      if (!over) take(d);
    } catch { /* the other figures are there; the next reading may succeed */ }
  };
  const load = async () => {
    await Promise.all([read("minions", { limit: 1 }, (d) => { severities = d.counts.severity; }), read("moves", { limit: shownMoves, all: true }, (d) => takeMoves(d.rows)),
      read("jobs", { limit: shownJobs }, (d) => { jobs = d.rows.filter((j) => j.returned < j.minions).length; })]);
    if (over) return;
    draw();
    timer = setTimeout(load, readEvery);
  };
  draw();
  list();
  load();
  const ends = [watch("topology", draw), watch("moves", list)];
  return () => { over = true; clearTimeout(timer); ends.forEach((end) => end()); };
}
