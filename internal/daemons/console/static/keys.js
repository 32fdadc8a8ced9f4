import { h, fill, table, row, status, ask, say } from "./dom.js";
import { read, wheel, write } from "./api.js";
import { watch } from "./store.js";
import { plain } from "./text.js";

const groups = [["minions_pre", "Waiting", "waiting"], ["minions_denied", "Denied", "failed"], ["minions_rejected", "Rejected", "failed"], ["minions", "Accepted", "ok"]];
const maxRows = 500, interval = 5000; // milliseconds
const lists = { pending: "minions_pre", denied: "minions_denied", rejected: "minions_rejected", accepted: "minions" };
const dots = { accepted: ["ok", "\u2713"], pending: ["waiting", "\u2026"], rejected: ["failed", "\u2717"], denied: ["failed", "\u2717"] };

const actions = {
  accept: { word: "Accept", fun: "key.accept_dict", on: ["minions_pre", "minions_rejected"] },
  reject: { word: "Reject", fun: "key.reject_dict", on: ["minions_pre", "minions"] },
  delete: { word: "Delete", fun: "key.delete_dict", on: ["minions_pre", "minions_denied", "minions_rejected", "minions"], danger: true },
};

// keys shows the keys of minions. A decision shows the fingerprint first.
export function keys(main, { query, user }) {
  const list = h("div", { id: "list" }), error = h("p", { class: "error", role: "alert" });
  const search = h("input", { class: "filter", id: "f-search", value: query.get("search") || "" });
  const result = h("div", { id: "decided", role: "status" });
  const chosen = new Set(); // state and id, with a slash between
  let all = null, others = new Map(), problems = {}, over = false, shown = "", again = null;

  const load = async () => {
    try {
      clearTimeout(again);
      const d = await read("keys");
      if (over) return;
      // No event tells of what happens at other masters.
      if (d.problems || d.keys.some((k) => k.masters)) again = setTimeout(load, interval);
      if (JSON.stringify(d) === shown) return; // what has the focus stays
      shown = JSON.stringify(d);
      all = { elsewhere: [] };
      others = new Map();
      problems = d.problems || {};
      for (const k of d.keys) {
        const list = lists[k.state] || "elsewhere";
        (all[list] = all[list] || []).push(k.id);
        if (k.masters) others.set(k.id, k);
      }
      draw();
    } catch (e) {
      if (!over) fill(error, e.message);
    }
  };
  const draw = () => {
    if (!all) return;
    const several = others.size > 0;
    const parts = groups.map(([state, title, kind]) => {
      const ids = (all[state] || []).filter((id) => id.includes(search.value));
      const buttons = (id) => h("span", { class: "words" }, Object.entries(actions).filter(([, a]) => a.on.includes(state) && user.may["wheel." + a.fun]).map(([name, a]) =>
        h("button", { type: "button", class: name + (a.danger ? " danger" : ""), "aria-label": a.word + " the key of " + id, on: { click: () => decide(name, state, id) } }, a.word)));
      const own = Object.entries(actions).filter(([, a]) => a.on.includes(state) && user.may["wheel." + a.fun]);
      const shown = ids.slice(0, maxRows);
      const pick = (id) => h("input", { type: "checkbox", class: "pick", checked: chosen.has(state + "/" + id), "aria-label": "Select " + id, on: { change: (e) => { select(state, [id], e.target.checked); } } });
      const bulk = own.length > 0 && user.may["wheel.key.finger"] && shown.length > 1 && h("div", { class: "fields bulk" },
        h("label", { class: "check" }, h("input", { type: "checkbox", class: "pick-all", checked: shown.every((id) => chosen.has(state + "/" + id)), on: { change: (e) => { select(state, shown, e.target.checked); draw(); } } }), " All " + shown.length + " shown"),
        own.map(([name, a]) => h("button", { type: "button", class: "bulk-" + name + (a.danger ? " danger" : ""), on: { click: () => decideMany(name, state) } }, a.word + " selected")));
      return h("section", { "data-state": state }, h("h2", {}, title + " (" + ids.length + ")"), bulk, ids.length > 0 &&
        table(title, [...(bulk ? ["Select"] : []), "Minion", "State", ...(several ? ["Masters"] : []), "Actions"], shown.map((id) => row([...(bulk ? [pick(id)] : []), h("span", { class: "data" }, id), status(kind, title.toLowerCase()),
          ...(several ? [perMaster(id)] : []), buttons(id)], { "data-id": id }))),
        ids.length > maxRows && h("p", { class: "cut" }, (ids.length - maxRows) + " more: search for them."));
    });
    const away = all.elsewhere.filter((id) => id.includes(search.value));
    fill(list, Object.entries(problems).map(([m, why]) => h("p", { class: "error" }, m + " does not answer, and its last known keys are shown: " + plain(why))), parts,
      away.length > 0 && h("section", { "data-state": "elsewhere" }, h("h2", {}, "Only at other masters (" + away.length + ")"),
        table("Only at other masters", ["Minion", "Masters"], away.slice(0, maxRows).map((id) => row([h("span", { class: "data" }, id), perMaster(id)], { "data-id": id })))));
  };
  // perMaster shows the state of a key at each master, where several masters tell each other.
  const perMaster = (id) => {
    const k = others.get(id);
    if (!k) return "";
    const conflict = k.conflict && Object.keys(k.conflict).length > 0;
    return h("span", { class: "words" }, Object.entries(k.masters).map(([m, state]) => h("span", { class: "status " + (dots[state] || ["offline"])[0], "data-master": m, title: m + ": " + (state || "no key") },
      (dots[state] || ["", "\u25cb"])[1] + " " + m, h("span", { class: "hidden-text" }, " " + (state || "no key")))),
    conflict && h("details", { class: "conflict" }, h("summary", {}, status("failed", "different keys")), h("ul", { class: "data" }, Object.entries(k.conflict).map(([m, f]) => h("li", {}, m + ": " + plain(f))))));
  };
  // told shows what was not done, and at which master.
  const told = (got, left, n) => {
    const bad = [...got.keys.filter((k) => !k.done), ...left];
    const away = got.keys.flatMap((k) => Object.entries(k.masters || {}).filter(([, m]) => m && m.done === false).map(([m, x]) => ({ id: k.id, reason: m + ": " + (x.reason || "not done") })));
    fill(result, h("p", {}, got.done + " of " + n + " done."), bad.length + away.length > 0 && h("ul", {}, [...bad, ...away].slice(0, 100).map((k) => h("li", {}, h("span", { class: "data" }, k.id), ": " + k.reason))));
  };
  const fingerprint = async (state, id) => {
    const found = await wheel("key.finger", { match: id });
    return (found[state] || {})[id] || "";
  };
  const decide = async (name, state, id) => {
    const a = actions[name];
    fill(error);
    try {
      const finger = user.may["wheel.key.finger"] ? await fingerprint(state, id) : "";
      if (user.may["wheel.key.finger"] && !finger) throw new Error("The key of " + id + " is no longer in this state.");
      const body = h("div", {}, h("p", {}, a.word + " the key of ", h("strong", { class: "data" }, id), "?"),
        finger ? [h("p", {}, "Fingerprint:"), h("p", { class: "data", id: "fingerprint" }, finger), name === "accept" && h("p", { class: "quiet" }, "Compare it with salt-call --local key.finger on the minion.")] :
          h("p", { class: "quiet" }, "You have no permission to see the fingerprint."));
      if (!await ask(a.word + " a key", body, a.word, a.danger)) return;
      // Another key may have come under this id while the question was shown.
      if (finger && await fingerprint(state, id) !== finger) throw new Error("The key of " + id + " has changed meanwhile: nothing was done.");
      const got = await write("keys", { action: name, ids: [id], ...(finger ? { fingerprints: { [id]: finger } } : {}) });
      told(got, [], 1);
      if (got.done === 1) say(a.word + ": " + id);
      await load();
    } catch (e) {
      if (!over) fill(error, e.message);
    }
  };
  const select = (state, ids, on) => {
    for (const id of ids) {
      if (on) chosen.add(state + "/" + id);
      else chosen.delete(state + "/" + id);
    }
  };
  // decideMany decides on the selected keys of one state. With fingerprints pasted, only keys with one
  // of them count. The server leaves a key as it is that has changed meanwhile, and tells of each key.
  const decideMany = async (name, state) => {
    const a = actions[name];
    fill(error);
    const ids = (all[state] || []).filter((id) => chosen.has(state + "/" + id));
    if (ids.length === 0) { fill(error, "No key is selected."); return; }
    try {
      const found = (await wheel("key.finger", { match: "*" }))[state] || {};
      const expected = h("textarea", { id: "expected", rows: 4, spellcheck: "false" });
      const body = h("div", {}, h("p", {}, a.word + " these keys?"),
        h("ul", { class: "data fingers" }, ids.slice(0, 50).map((id) => h("li", {}, id + "  " + (found[id] || "has no key any more")))), ids.length > 50 && h("p", { class: "cut" }, (ids.length - 50) + " more"),
        name === "accept" && [h("label", { for: "expected" }, "Expected fingerprints, from the minions (optional): only these are accepted"), expected]);
      if (!await ask(a.word + " " + ids.length + (ids.length === 1 ? " key" : " keys"), body, a.word, a.danger)) return;
      const wanted = new Set(expected.value.toLowerCase().match(/[0-9a-f]{2}(?::[0-9a-f]{2})+/g) || []);
      const fits = ids.filter((id) => found[id] && (wanted.size === 0 || wanted.has(found[id].toLowerCase())));
      const left = ids.filter((id) => !fits.includes(id)).map((id) => ({ id, reason: found[id] ? "its fingerprint is not among the expected ones" : "there is no key of this minion" }));
      const got = fits.length > 0 ? await write("keys", { action: name, ids: fits, fingerprints: Object.fromEntries(fits.map((id) => [id, found[id]])) }) : { done: 0, keys: [] };
      told(got, left, ids.length);
      chosen.clear();
      draw();
      await load();
    } catch (e) {
      if (!over) fill(error, e.message);
    }
  };
  search.addEventListener("input", draw);
  fill(main, h("h1", {}, "Keys"), error, h("div", { class: "fields" }, h("div", { class: "grow" }, h("label", { for: "f-search" }, "Part of the id"), search)), result, list);
  load();
  let due = null;
  const end = watch("keys", () => { clearTimeout(due); due = setTimeout(load, 300); });
  return () => { over = true; clearTimeout(due); clearTimeout(again); end(); };
}
