// What the user has chosen for this browser, and what runs.

import { h, fill, row, table, stateOf } from "./dom.js";
import { look } from "./api.js";
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

export function settings(main, { user, server, keyMap }) {
  const masters = h("div", { id: "masters" }), versions = h("div", { id: "versions" });
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
    h("section", { class: "card" }, h("h2", {}, "Keys of the keyboard"), keyMap()));
  draw();
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
