// What the user has chosen for this browser, and what runs.

import { h, fill, row, table, stateOf, status } from "./dom.js";
import { look, read } from "./api.js";
import { store, watch } from "./store.js";
import { choice, choose, date } from "./text.js";

const choices = [
  ["theme", "Theme", [["", "as the system"], ["light", "light"], ["dark", "dark"]]],
  ["density", "Rows", [["", "comfortable"], ["dense", "dense"]]],
  ["times", "Times", [["", "in the zone of this browser"], ["utc", "in UTC"]]],
];

// appearance applies the choices to the page.
export function appearance() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = choice("theme") || (dark ? "dark" : "light");
  document.documentElement.dataset.density = choice("density") || "comfortable";
}

const bytes = (n) => (n >= 1 << 30 ? (n / (1 << 30)).toFixed(1) + " GiB" : n >= 1 << 20 ? (n / (1 << 20)).toFixed(1) + " MiB" : (n / 1024).toFixed(1) + " KiB");
const stored = { jobs: "jobs and results", audit: "audit records", states: "last runs of states", saved: "saved targets, jobs, schedules and views" };

// stores shows what stores history on the master that answers.
function stores(d) {
  return [h("p", {}, "Master " + d.master + (d.disk.size ? ": " + bytes(d.disk.free) + " of " + bytes(d.disk.size) + " are free on its disk." : ".")),
    table("Stores", ["Stores", "Driver", "State", { text: "Size", number: true }, { text: "Number", number: true }, "Oldest", "Kept"], d.stores.map((s) => row([
      stored[s.name] || s.name, [s.driver, s.path && h("div", { class: "quiet data" }, s.path)],
      s.problem ? [status("failed", "error"), h("div", { class: "error" }, s.problem)] : s.waiting > 0 ? status("waiting", s.waiting + " wait for it") : status("ok", "works"),
      h("td", { class: "number" }, "bytes" in s ? bytes(s.bytes) : ""), h("td", { class: "number" }, "count" in s ? (s.more ? "more than " : "") + s.count : ""),
      s.oldest ? date(s.oldest) : "", s.limit ? "up to " + s.limit : s.days > 0 ? Number(s.days.toFixed(2)) + " days" : "for ever"], { "data-store": s.name })))];
}

export function settings(main, { user, server, keyMap }) {
  const masters = h("div", { id: "masters" }), versions = h("div", { id: "versions" }), history = h("div", { id: "stores" });
  let over = false;
  const select = ([name, label, list]) => {
    const s = h("select", { id: "c-" + name }, list.map(([v, t]) => h("option", { value: v }, t)));
    s.value = choice(name);
    s.addEventListener("change", () => { choose(name, s.value); appearance(); });
    return h("div", {}, h("label", { for: "c-" + name }, label), s);
  };
  const draw = () => fill(masters, table("Masters", ["Master", "State", { text: "Minions", number: true }], store.masters.map((m) => row([
    [m.id, m.here && " (this master)"], stateOf(m.state), h("td", { class: "number" }, m.minions ?? "")]))));
  fill(main, h("h1", {}, "Settings"),
    h("section", { class: "card" }, h("h2", {}, "This browser"), h("div", { class: "fields" }, choices.map(select))),
    h("section", { class: "card" }, h("h2", {}, "Your session"), h("p", {}, user.user + " by " + user.eauth + ", until " + date(user.expire * 1000) +
      (user.idle ? ". It ends after " + Math.round(user.idle / 60) + " minutes without input." : "."), " ", h("a", { href: "#/access" }, "All sessions"))),
    h("section", { class: "card" }, h("h2", {}, "Versions"), h("p", {}, "salt-api: Brine " + server.version), masters, versions),
    user.may["runner.fleet.store"] && h("section", { class: "card" }, h("h2", {}, "Stores"), history),
    h("section", { class: "card" }, h("h2", {}, "Keys of the keyboard"), keyMap()));
  draw();
  if (user.may["runner.fleet.store"]) read("store").then((d) => { if (!over) fill(history, stores(d)); }, (e) => { if (!over) fill(history, h("p", { class: "error" }, e.message)); });
  if (user.may["runner.fleet.minions"]) {
    look("minions", { limit: 1 }).then((d) => {
      if (over) return;
      const all = Object.entries(d.counts.version).sort((a, b) => b[1] - a[1]);
      fill(versions, table("Versions of minions", ["Version of Salt", { text: "Minions", number: true }], all.map(([v, n]) => row([v || "unknown", h("td", { class: "number" }, n)]))));
    }, () => {});
  }
  const end = watch("topology", draw);
  return () => { over = true; end(); };
}
