import { h, fill, table, row, status, ask, say } from "./dom.js";
import { wheel, write } from "./api.js";
import { watch } from "./store.js";

const groups = [["minions_pre", "Waiting", "waiting"], ["minions_denied", "Denied", "failed"], ["minions_rejected", "Rejected", "failed"], ["minions", "Accepted", "ok"]];
const maxRows = 500;

const actions = {
  accept: { word: "Accept", fun: "key.accept_dict", on: ["minions_pre", "minions_rejected"], more: { include_rejected: true } },
  reject: { word: "Reject", fun: "key.reject_dict", on: ["minions_pre", "minions"], more: { include_accepted: true } },
  delete: { word: "Delete", fun: "key.delete_dict", on: ["minions_pre", "minions_denied", "minions_rejected", "minions"], danger: true },
};

// keys shows the keys of minions. A decision shows the fingerprint first.
export function keys(main, { query, user }) {
  const list = h("div", { id: "list" }), error = h("p", { class: "error", role: "alert" });
  const search = h("input", { class: "filter", id: "f-search", value: query.get("search") || "" });
  const result = h("div", { id: "decided", role: "status" });
  const chosen = new Set(); // state and id, with a slash between
  let all = null, over = false;

  const load = async () => {
    try {
      all = await wheel("key.list_all");
      if (!over) draw();
    } catch (e) {
      if (!over) fill(error, e.message);
    }
  };
  const draw = () => {
    if (!all) return;
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
        table(title, [...(bulk ? ["Select"] : []), "Minion", "State", "Actions"], shown.map((id) => row([...(bulk ? [pick(id)] : []), h("span", { class: "data" }, id), status(kind, title.toLowerCase()), buttons(id)], { "data-id": id }))),
        ids.length > maxRows && h("p", { class: "cut" }, (ids.length - maxRows) + " more: search for them."));
    });
    fill(list, parts);
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
      await wheel(a.fun, { match: { [state]: [id] }, ...(a.more || {}) });
      say(a.word + ": " + id);
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
      const bad = [...got.keys.filter((k) => !k.done), ...left];
      fill(result, h("p", {}, got.done + " of " + ids.length + " done."), bad.length > 0 && h("ul", {}, bad.slice(0, 100).map((k) => h("li", {}, h("span", { class: "data" }, k.id), ": " + k.reason))));
      chosen.clear();
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
  return () => { over = true; clearTimeout(due); end(); };
}
