// One minion: its masters, key, runs of states, jobs, schedule, beacons, mine data, grains and pillar.

import { h, fill, table, row, stateOf, status } from "./dom.js";
import { store, watch } from "./store.js";
import { look, read } from "./api.js";
import { tree } from "./result.js";
import { address, date, plain } from "./text.js";
import { pillarOf } from "./files.js";
import { jobRows } from "./jobs.js";
import { runsOf } from "./minions.js";
import { scheduleRows } from "./schedules.js";

const maxEntries = 50; // of its schedule
const linkKinds = { connected: "ok", standby: "waiting", off: "offline" };
const sorted = (d) => Object.fromEntries(Object.entries(d).sort(([a], [b]) => (a < b ? -1 : 1)));
const quiet = (text) => h("p", { class: "quiet" }, text);

// connections shows the masters that the minion has reported, and its last changes of masters.
function connections(d) {
  const links = d.links || [], moves = d.moves || (d.changed ? [d.changed] : []);
  return [d.since ? h("p", { id: "since" }, "Connected since " + date(d.since) + (d.by.length > 0 ? " to " + d.by.join(", ") : "") + (d.mode ? " (" + d.mode + ")" : "") + ".") :
    quiet(d.state === "down" ? "It is not connected." : "It has not reported since when it is connected: only Brine minions do."),
  links.length > 0 && table("Its masters", ["Master", "Connection", "Since"], links.map((l) => row([[l.master, l.here && " (this master)", l.name !== l.master && [" ", h("span", { class: "quiet data" }, l.name)]],
    [status(linkKinds[l.state] || "failed", plain(l.state)), l.jobs && " runs its jobs"], l.since ? date(l.since) : ""], { "data-link": l.master }))),
  moves.length > 0 && table("Its changes of masters", ["Time", "From", "To", "Reason", { text: "Seconds", number: true }], moves.map((m) => row([date(m.at), m.from || "first connection", m.to, m.reason || "",
    h("td", { class: "number" }, typeof m.seconds === "number" ? m.seconds.toFixed(3) : "")], { "data-to": m.to })))];
}

// keyOf shows the fingerprint of its key, at each master where several tell each other.
function keyOf(d, id, user) {
  const k = d.key || {};
  const masters = Object.entries(k.masters || {});
  const differ = new Set(masters.filter(([, m]) => m && m.fingerprint).map(([, m]) => m.fingerprint)).size > 1;
  return [h("p", {}, k.fingerprint ? [status("ok", "accepted"), " ", h("span", { class: "data", id: "fingerprint" }, k.fingerprint)] : status("offline", "accepted at another master only")),
    masters.length > 0 && table("Its key at each master", ["Master", "State", "Fingerprint"], masters.map(([name, m]) => row([name, m ? status(m.list === "minions" ? "ok" : m.list === "minions_pre" ? "waiting" : "failed", { minions: "accepted", minions_pre: "waiting", minions_rejected: "rejected", minions_denied: "denied" }[m.list] || plain(m.list)) : status("offline", "no key"),
      h("span", { class: "data" }, m && m.fingerprint ? m.fingerprint : "")], { "data-master": name }))),
    differ && h("p", { class: "error" }, "The masters have different keys of this minion."),
    user.may["wheel.key.list_all"] && h("p", {}, h("a", { href: "#/keys?search=" + address(id) }, "Decide on its key"))];
}

// beacons shows those in its pillar, and those of which events arrived.
function beacons(all) {
  if (all.length === 0) return quiet("The master knows of no beacon: none is in the pillar, and none has sent an event.");
  return table("Beacons", ["Beacon", "State", "From", { text: "Events", number: true }, "Last event"], all.map((b) => row([h("span", { class: "data" }, b.name),
    b.enabled === false ? status("offline", "disabled") : b.source === "pillar" ? ["enabled", b.interval !== undefined && ", every " + plain(b.interval) + " s"] : "", b.source === "pillar" ? "pillar" : "its events",
    h("td", { class: "number" }, b.events || 0), b.last ? date(b.last) : ""], { "data-beacon": b.name })));
}

// mine shows the names of its mine data, and the values when the user asks: they may be large.
function mine(all, id) {
  if (all.length === 0) return quiet("It has no data in the mine.");
  const place = h("div", {}), error = h("p", { class: "error", role: "alert" });
  const show = async () => {
    try {
      const d = await read("mine/" + address(id));
      fill(error);
      fill(place, quiet("Values that look like secrets are hidden."), tree(d.mine, { masked: true, paths: true }), d.cut.length > 0 && h("p", { class: "cut" }, "Too large to be shown here: " + d.cut.join(", ")));
    } catch (e) {
      fill(error, e.message);
    }
  };
  return [table("Mine data", ["Function", { text: "Size (bytes)", number: true }, "Who may read it"], all.map((m) => row([h("span", { class: "data" }, m.name), h("td", { class: "number" }, m.bytes > 65536 ? "more than 65536" : m.bytes),
    m.allow_tgt ? h("span", { class: "data" }, plain(m.allow_tgt)) : "all minions"], { "data-mine": m.name }))), h("p", {}, h("button", { type: "button", id: "show-mine", on: { click: show } }, "Show the data")), error, place];
}

export function minion(main, { part: id, user }) {
  const part = (name) => h("div", { id: name });
  const about = h("div", { class: "card" }), links = part("connections"), key = part("key"), states = part("states"), last = part("jobs"), schedule = part("schedule"), lights = part("beacons"), data = part("mine");
  const grains = h("div", { class: "card", id: "grains" }), error = h("p", { class: "error", role: "alert" });
  const may = user.may;
  let over = false;
  const link = () => {
    const m = store.minions.get(id);
    if (m) fill(about.firstChild || about.appendChild(h("p", { id: "link" })), stateOf(m.state), " ", m.by.length > 0 && "Masters: " + m.by.join(", "),
      m.standby && m.standby.length > 0 && ". Standby: " + m.standby.join(", "));
  };
  let moved = "";
  const load = async () => {
    try {
      const d = await look("minion", { id });
      if (over) return;
      store.minions.set(id, { state: d.state, by: d.by, standby: d.standby });
      moved = JSON.stringify([d.state, d.by, d.standby]);
      fill(error);
      link();
      fill(links, connections(d));
      fill(key, keyOf(d, id, user));
      fill(states, runsOf(d));
      fill(lights, beacons(d.beacons || []));
      fill(data, mine(d.mine || [], id));
      fill(grains, Object.keys(d.grains).length ? tree(sorted(d.grains), { paths: true }) : quiet("The master has no grains of this minion."));
    } catch (e) {
      if (!over) fill(error, e.message);
    }
  };
  const loadPart = async (place, ask, draw) => {
    try {
      const d = await ask();
      if (!over) fill(place, draw(d));
    } catch (e) {
      if (!over) fill(place, h("p", { class: "error" }, e.message));
    }
  };
  fill(main, h("h1", { class: "data" }, id), error, about,
    h("p", { class: "words" }, user.commands && h("a", { href: "#/run?tgt=" + address(id) + "&tgt_type=list" }, "Run a function on it"), may["runner.fleet.runs"] && h("a", { href: "#/history/" + address(id) }, "All runs of states")),
    h("h2", {}, "Connection"), links, h("h2", {}, "Key"), key, h("h2", {}, "Last runs of states"), states,
    may["runner.fleet.jobs"] && [h("h2", {}, "Last jobs"), last],
    may["runner.fleet.schedules"] && [h("h2", {}, "Schedule"), schedule, h("p", {}, h("a", { href: "#/schedules?minion=" + address(id) }, "Its schedules"))],
    h("h2", {}, "Beacons"), lights, h("h2", {}, "Mine data"), data, h("h2", {}, "Grains"), grains,
    may["runner.pillar.show_pillar"] && [h("h2", {}, "Pillar"), pillarOf(id)]);
  link();
  load();
  if (may["runner.fleet.jobs"]) loadPart(last, () => look("jobs", { minion: id, limit: 20 }), (d) => jobRows(d.rows));
  if (may["runner.fleet.schedules"]) {
    loadPart(schedule, () => look("schedules", { minion: id, limit: maxEntries }), (d) => (d.rows.length === 0 ? quiet("No entry is known: none is in its pillar, and none has returned in the last 24 hours.") :
      [scheduleRows(d.rows), d.matched > maxEntries && h("p", { class: "cut" }, (d.matched - maxEntries) + " more entries")]));
  }
  // The connection is read again when the topology has another one.
  let due = null;
  const end = watch("topology", () => {
    link();
    const m = store.minions.get(id);
    if (!m || JSON.stringify([m.state, m.by, m.standby]) === moved) return;
    moved = JSON.stringify([m.state, m.by, m.standby]);
    clearTimeout(due);
    due = setTimeout(async () => {
      try {
        const d = await look("minion", { id });
        if (!over) fill(links, connections(d));
      } catch { /* what is shown stays */ }
    }, 1000);
  });
  return () => { over = true; clearTimeout(due); end(); };
}
