// The frame of the console: sign-in, navigation, keys of the keyboard, and the pages.

import { h, fill, say, ask } from "./dom.js";
import { boot, me, logout, onEnd, calls } from "./api.js";
import { store, watch, reset } from "./store.js";
import { open, close } from "./stream.js";
import { signIn, fromProvider } from "./signin.js";
import { watchIdle } from "./idle.js";
import { overview } from "./overview.js";
import { minions } from "./minions.js";
import { minion } from "./minion.js";
import { keys } from "./keys.js";
import { jobs, job } from "./jobs.js";
import { runPage } from "./run.js";
import { quoted } from "./words.js";
import { events } from "./events.js";
import { statesPage } from "./states.js";
import { past, pastOf } from "./history.js";
import { schedules } from "./schedules.js";
import { files } from "./files.js";
import { access } from "./access.js";
import { audit } from "./audit.js";
import { approvals } from "./approvals.js";
import { orchestrations } from "./orchestrations.js";
import { settings, appearance } from "./settings.js";
import { choose } from "./text.js";
import { palette, forget } from "./palette.js";

const pages = {
  overview: { title: "Overview", key: "o", show: overview, needs: "runner.fleet.topology" },
  minions: { title: "Minions", key: "m", show: minions, one: minion, needs: "runner.fleet.minions" },
  keys: { title: "Keys", key: "k", show: keys, needs: "wheel.key.list_all" },
  jobs: { title: "Jobs", key: "j", show: jobs, one: job },
  run: { title: "Run", key: "r", show: runPage },
  states: { title: "States", key: "s", show: statesPage, needs: "runner.fleet.states" },
  history: { title: "History", key: "h", show: past, one: pastOf, needs: "runner.fleet.history" },
  orchestrations: { title: "Orchestrations", key: "n", show: orchestrations, one: orchestrations },
  schedules: { title: "Schedules", key: "d", show: schedules, needs: "runner.fleet.schedules" },
  files: { title: "Files and pillar", key: "f", show: files, needs: "runner.fleet.files" },
  events: { title: "Events", key: "e", show: events },
  approvals: { title: "Approvals", key: "p", show: approvals, off: () => !server.approval_above },
  access: { title: "Access", key: "a", show: access },
  audit: { title: "Audit", key: "u", show: audit, needs: "runner.audit.list" },
  settings: { title: "Settings", key: ",", show: settings },
};

const app = document.getElementById("app");
const server = { eauth: [], masters: [], version: "" };
let user = null, main = null, leave = () => {}, shown = "", notIdle = () => {};

// The theme is the system's, unless the user has chosen.
function otherTheme() {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  choose("theme", next);
  document.documentElement.dataset.theme = next;
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", appearance);
appearance();

// place reads the address: #/page/part?name=value.
export function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  let part = rest.join("/");
  try { part = decodeURIComponent(part); } catch { /* shown as it is */ }
  return { name: Object.hasOwn(pages, name) ? name : "overview", part, query: new URLSearchParams(query || "") };
}

function frame() {
  const banner = h("div", { class: "banner", role: "alert", hidden: true, id: "banner" });
  main = h("main", { id: "main", tabindex: "-1" });
  const link = ([name, p]) => h("a", { href: "#/" + name, "data-page": name }, p.title);
  fill(app, h("div", { class: "shell" },
    h("div", { class: "side" }, h("nav", { "aria-label": "Pages" }, h("div", { class: "name" }, "Brine"), Object.entries(pages).filter(([, p]) => allowed(p)).map(link))),
    h("div", {},
      h("header", { class: "top" },
        h("span", { id: "connection", class: "status waiting" }, "\u2026 connecting"), h("span", { class: "space" }),
        h("span", { class: "quiet data", id: "who" }, user.user),
        h("button", { type: "button", id: "theme", on: { click: otherTheme } }, "Theme"),
        h("button", { type: "button", id: "go", on: { click: openPalette } }, "Go to Ctrl-K"),
        h("button", { type: "button", id: "help", on: { click: help } }, "Keys ?"),
        h("button", { type: "button", id: "sign-out", on: { click: signOut } }, "Sign out")),
      banner, main, h("footer", {}, same()))));
}

// same shows what a page has read as lines for a shell.
function same() {
  const list = h("div", {});
  const url = quoted(location.origin + location.pathname.replace(/\/console\/.*$/, ""));
  const token = "-H 'X-Auth-Token: TOKEN'";
  const lines = () => (calls.length === 0 ? [["curl -sN", url + "/v1/events", token]] : calls.flatMap((c) => (c.path ? [["curl -s", quoted(location.origin + location.pathname.replace(/\/console\/.*$/, "") + "/v1/" + c.path), token]] : [
    ["salt-run", c.fun, ...c.args.map(([k, v]) => quoted(k + "=" + v))],
    ["curl -s", url, token, ...[["client", "runner"], ["fun", c.fun], ...c.args].map(([k, v]) => "--data-urlencode " + quoted(k + "=" + v))]])));
  return h("details", { id: "same", on: { toggle: (e) => { if (e.target.open) fill(list, lines().map((l) => h("p", { class: "data" }, l.join(" ")))); } } },
    h("summary", {}, "The same on the command line, and for the REST API"), list);
}

const allowed = (p) => (!p.needs || user.may[p.needs]) && !(p.off && p.off());

async function route() {
  if (!user) return;
  const at = place();
  const p = pages[at.name];
  const id = at.name + "/" + at.part;
  leave();
  leave = () => {};
  calls.length = 0;
  say(""); // what was said belongs to the page before
  /** @type {HTMLDetailsElement} */ (document.getElementById("same")).open = false;
  for (const a of /** @type {NodeListOf<HTMLAnchorElement>} */ (app.querySelectorAll("nav a"))) {
    if (a.dataset.page === at.name) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  document.title = p.title + " \u2013 Brine console";
  fill(main);
  if (!allowed(p)) {
    fill(main, h("h1", {}, p.title), h("p", {}, p.needs ? "Your permissions do not include " + p.needs.replace(".", " ") + ". An entry of external_auth can grant it." : "The master has this switched off."));
  } else {
    leave = (at.part && p.one ? p.one : p.show)(main, { ...at, user, server, keyMap }) || (() => {});
  }
  if (shown && shown !== id) main.focus();
  shown = id;
}

function connection() {
  const e = document.getElementById("connection");
  if (!e) return;
  e.className = "status " + (store.connected ? "ok" : "failed");
  e.textContent = store.connected ? "\u2713 live" : "\u2717 connection lost, trying again";
  if (!store.connected) say("The connection to the server is lost. Trying again.");
}

const bannerTime = 600000; // milliseconds for which a failover is announced
let dismissed = 0; // the time of the newest change when the user dismissed the banner

function failover() {
  const e = document.getElementById("banner");
  const last = store.moves[0];
  if (!e || !last) return;
  if (last.at <= dismissed || Date.now() - last.at > bannerTime) {
    e.hidden = true;
    return;
  }
  const recent = store.moves.filter((m) => m.from === last.from && last.at - m.at < 60000);
  const text = "Failover: " + recent.length + (recent.length === 1 ? " minion has" : " minions have") + " moved from " + last.from + " to " +
    [...new Set(recent.map((m) => m.to))].join(", ") + " (" + last.reason + ")";
  const down = [...store.minions.values()].filter((m) => m.state === "down").length;
  const whole = text + (down > 0 ? "; " + down + (down === 1 ? " minion is" : " minions are") + " not connected" : "");
  if (e.dataset.text !== whole) { // the button keeps the focus otherwise
    e.dataset.text = whole;
    fill(e, whole, " ", h("button", { type: "button", id: "dismiss", on: { click: () => { dismissed = store.moves[0].at; failover(); main.focus(); } } }, "Dismiss"));
  }
  e.hidden = false;
}

function openPalette() {
  palette(Object.fromEntries(Object.entries(pages).filter(([, p]) => allowed(p)).map(([name, p]) => [name, p.title])), user);
}

// keyMap is the list of keys of the keyboard.
function keyMap() {
  const rows = [["?", "this list"], ["Ctrl-K", "go to a page, a minion, a job or a function"], ["/", "search or filter"], ["j / k", "next or previous row"], ["Enter", "open the row"], ["x", "select the row"], ["r", "run a function, on the selected minions"], ["Esc", "leave a field"],
    ["t", "theme"], ...Object.values(pages).filter(allowed).map((p) => ["g " + p.key, p.title])];
  return h("table", { class: "keys" }, h("tbody", {}, rows.map(([k, t]) => h("tr", {}, h("td", {}, h("kbd", {}, k)), h("td", {}, t)))));
}

const help = () => { ask("Keyboard", keyMap()); };

let goes = 0; // when g was pressed
document.addEventListener("keydown", (e) => {
  if (user && (e.ctrlKey || e.metaKey) && !e.altKey && !e.shiftKey && e.key.toLowerCase() === "k") {
    e.preventDefault();
    openPalette();
    return;
  }
  if (!user || e.ctrlKey || e.altKey || e.metaKey || document.querySelector("dialog[open]")) return;
  const field = e.target instanceof Element && /** @type {HTMLElement} */ (e.target.closest("input:not([type=checkbox]), select, textarea"));
  if (e.key === "Escape" && field) { field.blur(); main.focus(); return; }
  if (field) return;
  const rows = [...main.querySelectorAll("table:not(.keys) tbody tr")].filter((r) => r.offsetParent);
  const at = rows.findIndex((r) => r.classList.contains("at"));
  const go = (i) => {
    if (!rows[i]) return;
    if (rows[at]) rows[at].classList.remove("at");
    rows[i].classList.add("at");
    const a = rows[i].querySelector("a, button:not([disabled])") || rows[i].querySelector("input");
    if (a) a.focus();
    rows[i].scrollIntoView({ block: "nearest" });
  };
  if (Date.now() - goes < 1500) {
    goes = 0;
    const next = Object.entries(pages).find(([, p]) => p.key === e.key && allowed(p));
    if (next) { e.preventDefault(); location.hash = "#/" + next[0]; return; }
  }
  const does = {
    "?": help, t: otherTheme, g: () => { goes = Date.now(); },
    "/": () => { const f = main.querySelector("input.filter"); if (f) f.focus(); },
    j: () => go(at + 1), k: () => go(at - 1),
    r: () => { const run = main.querySelector("#act-run:not([disabled])"); if (run) run.click(); else location.hash = "#/run"; },
    x: () => { const box = rows[at] && rows[at].querySelector("input.pick"); if (box) box.click(); },
  }[e.key];
  if (does) { e.preventDefault(); does(); }
});

async function signOut() {
  try { await logout(); } catch { /* the page forgets all the same */ }
  stop();
}

// stop ends what needs a session, and asks for the next one.
function stop(problem) {
  if (!user) return;
  user = null;
  notIdle();
  leave();
  leave = () => {};
  close();
  reset();
  forget();
  shown = "";
  for (const d of document.querySelectorAll("dialog")) d.remove();
  askToSignIn(problem);
}

function askToSignIn(problem) {
  document.title = "Sign in \u2013 Brine console";
  signIn(app, server, begin, problem);
}

async function begin() {
  user = await me();
  notIdle = watchIdle(user.idle, async () => {
    try { await logout(); } catch { /* the server has ended the session, or will */ }
    stop("You were signed out, because you did nothing for a while.");
  });
  frame();
  open(server.masters);
  route();
}

onEnd(() => stop());
watch("connection", connection);
watch("connection", (again) => { if (again && place().name !== "run") route(); }); // a form keeps what was typed
watch("moves", failover);
watch("topology", failover);
addEventListener("hashchange", route);
document.getElementById("skip").addEventListener("click", (e) => { e.preventDefault(); if (main) main.focus(); });

try {
  Object.assign(server, await boot());
} catch (e) {
  fill(app, h("p", { class: "error" }, e.message));
}
let refused = "";
try {
  await fromProvider();
} catch (e) {
  refused = e.message;
}
try {
  await begin();
} catch {
  askToSignIn(refused);
}
