// Who may do what, and who is signed in.

import { h, fill, table, row, status, ask, say } from "./dom.js";
import { read, remove } from "./api.js";
import { address, plain, date } from "./text.js";
import { words } from "./words.js";

const shownGrants = 500;

// limits puts the limits of arguments of an entry into words.
function limits(v) {
  if (v === null || typeof v !== "object") return " with " + plain(v);
  const parts = [];
  if (Array.isArray(v.args)) parts.push("the arguments " + v.args.map((a) => (a === null ? "any" : plain(a))).join(", "));
  if (v.kwargs && typeof v.kwargs === "object") parts.push(Object.entries(v.kwargs).map(([k, x]) => k + "=" + plain(x)).join(", "));
  return parts.length > 0 ? " with " + parts.join(" and ") : "";
}

// sentence puts an entry of a list of permissions into words.
export function sentence(e) {
  if (typeof e === "string") {
    if (e === "@runner" || e === "@runners") return "may run all runners";
    if (e === "@wheel") return "may run all wheel functions";
    if (e.startsWith("@role:")) return "has the role " + e.slice(6);
    if (e.startsWith("@")) return "may run all functions of the master's module " + e.slice(1);
    if (e === ".*") return "may run all functions on all minions";
    return "may run functions that match " + e + " on all minions";
  }
  const [tgt, what] = Object.entries(e || {})[0] || ["", ""];
  const list = (Array.isArray(what) ? what : [what]).map((f) => (typeof f === "string" ? f : Object.entries(f || {}).map(([k, v]) => k + limits(v)).join(", ")));
  const text = list.length > 1 ? list.slice(0, -1).join(", ") + " and " + list[list.length - 1] : list.join("");
  if (/^@runners?$/.test(tgt)) return "may run the runner" + (list.length > 1 ? "s " : " ") + text;
  if (tgt === "@wheel") return "may run the wheel function" + (list.length > 1 ? "s " : " ") + text;
  if (tgt.startsWith("@")) return "may run of the master's module " + tgt.slice(1) + ": " + text;
  return "may run " + (text === ".*" ? "all functions" : text) + " on minions that match " + tgt;
}

export function access(main, { user }) {
  const answer = h("div", { id: "answer", role: "status" }), error = h("p", { class: "error", role: "alert" });
  const f = (name, label, value) => [h("label", { for: "f-" + name }, label), h("input", { id: "f-" + name, value: value || "", spellcheck: "false", autocapitalize: "none" })];
  const who = f("user", "User", user.user), fun = f("fun", "Function", "test.ping"), tgt = f("tgt", "Target (compound)", "*"), args = f("arg", "Arguments"), groups = f("groups", "Groups");
  const form = h("select", { id: "f-form" }, [["minions", "on minions"], ["runner", "runner"], ["wheel", "wheel function"]].map(([v, t]) => h("option", { value: v }, t)));
  const list = h("div", { id: "sessions" }), everyone = h("div", { id: "everyone" }), roles = h("div", { id: "roles" });
  let over = false;
  const test = async (e) => {
    e.preventDefault();
    fill(error);
    try {
      const q = new URLSearchParams({ user: who[1].value, fun: fun[1].value, form: form.value });
      if (form.value === "minions") { q.set("tgt", tgt[1].value); q.set("tgt_type", "compound"); }
      if (groups[1].value) q.set("groups", groups[1].value);
      for (const w of words(args[1].value)) q.append("arg", w);
      const d = await read("can?" + q);
      if (over) return;
      fill(answer, h("p", {}, d.allowed ? status("ok", who[1].value + " may do this") : status("failed", who[1].value + " may not do this")),
        d.forbidden && h("p", {}, d.forbidden),
        h("ul", {}, d.rules.map((r) => h("li", {}, r.source + (r.role ? ", by the role " + r.role : "") + ": " + sentence(r.entry), " ", h("span", { class: "data quiet" }, plain(r.entry))))));
    } catch (x) {
      if (!over) fill(error, x.message);
    }
  };
  const load = async () => {
    try {
      const d = await read("sessions");
      if (over) return;
      fill(list, table("Sessions", ["User", "From", "Started", "Last used", "Ends", "Actions"], d.sessions.map((s) => row([s.user, s.from || "", s.start ? date(s.start * 1000) : "",
        s.console && s.used ? date(s.used * 1000) : "", date(s.expire * 1000),
        s.current ? h("span", { class: "quiet" }, "this one") : h("button", { type: "button", class: "danger end", "aria-label": "End a session of " + s.user, on: { click: () => end(s) } }, "End")],
        { "data-user": s.user }))));
    } catch (x) {
      if (!over) fill(error, x.message);
    }
  };
  const loadEveryone = async () => {
    try {
      const all = await read("permissions");
      if (over) return;
      fill(everyone, all.length === 0 ? h("p", { class: "quiet" }, "external_auth and publisher_acl name no user.") : table("Users and groups", ["Who", "By", "Permissions"], all.slice(0, shownGrants).map((g) => row([
        (g.group ? "group " : "user ") + g.who, g.source, h("ul", {}, g.entries.slice(0, shownGrants).map((e) => h("li", {}, sentence(e))))], { "data-who": g.who }))),
        all.length > shownGrants && h("p", { class: "cut" }, "The first " + shownGrants + " of " + all.length + "."));
    } catch (x) {
      if (!over) fill(everyone, h("p", { class: "error" }, x.message));
    }
  };
  const loadRoles = async () => {
    try {
      const all = await read("roles");
      if (over) return;
      const bounded = (l, make) => [l.slice(0, shownGrants).map(make), l.length > shownGrants && h("li", { class: "cut" }, (l.length - shownGrants) + " more")];
      const of = (title, l, make, none) => [h("h4", {}, title), l.length > 0 ? h("ul", {}, bounded(l, make)) : h("p", { class: "quiet" }, none)];
      fill(roles, all.length === 0 ? h("p", { class: "quiet" }, "permission_roles has no roles.") : all.slice(0, shownGrants).map((r) => h("section", { class: "card role", "data-role": r.name, "aria-label": "Role " + r.name },
        h("h3", {}, r.name), r.description && h("p", {}, r.description),
        of("A user with it", r.entries, (e) => h("li", {}, sentence(e)), "It has no permissions."),
        of("It does not let a user", r.cannot, (t) => h("li", {}, t), "It includes all that this page checks."),
        r.partly.length > 0 && of("Only on some minions, or with some arguments", r.partly, (t) => h("li", {}, t), ""),
        of("Who has it", r.who, (g) => h("li", {}, (g.group ? "group " : "user ") + g.who + " (" + g.source + ")"), "No list names it."))));
    } catch (x) {
      if (!over) fill(roles, h("p", { class: "error" }, x.message));
    }
  };
  const end = async (s) => {
    if (!await ask("End a session", h("p", {}, "End this session of ", h("strong", {}, s.user), "? Its token ends as well."), "End", true)) return;
    try {
      await remove("sessions/" + address(s.id));
      say("The session has ended.");
    } catch (x) {
      fill(error, x.message);
    }
    await load();
  };
  fill(main, h("h1", {}, "Access"), error,
    user.may["runner.auth.can"] && [h("h2", {}, "May a user do this?"), h("form", { class: "card", id: "can", on: { submit: test } },
      h("div", { class: "fields" }, h("div", {}, who), h("div", {}, h("label", { for: "f-form" }, "Form"), form), h("div", { class: "grow" }, fun), h("div", { class: "grow" }, args)),
      h("div", { class: "fields" }, h("div", { class: "grow" }, tgt), h("div", {}, groups), h("button", { type: "submit", class: "main", id: "test" }, "Test")), answer)],
    user.may["runner.auth.permissions"] && [h("h2", {}, "Users and groups"), everyone],
    user.may["runner.auth.roles"] && [h("h2", {}, "Roles"), roles],
    h("h2", {}, "Your permissions"), h("ul", { id: "permissions" }, (user.perms || []).slice(0, 500).map((p) => h("li", {}, "You " + sentence(p)))),
    h("h2", {}, "Sessions of this server"), list);
  load();
  if (user.may["runner.auth.permissions"]) loadEveryone();
  if (user.may["runner.auth.roles"]) loadRoles();
  return () => { over = true; };
}
