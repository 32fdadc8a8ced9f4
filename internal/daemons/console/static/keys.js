import { h, fill, table, row, status, ask, say } from "./dom.js";
import { wheel } from "./api.js";
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
      return h("section", { "data-state": state }, h("h2", {}, title + " (" + ids.length + ")"), ids.length > 0 &&
        table(title, ["Minion", "State", "Actions"], ids.slice(0, maxRows).map((id) => row([h("span", { class: "data" }, id), status(kind, title.toLowerCase()), buttons(id)], { "data-id": id }))),
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
  search.addEventListener("input", draw);
  fill(main, h("h1", {}, "Keys"), error, h("div", { class: "fields" }, h("div", { class: "grow" }, h("label", { for: "f-search" }, "Part of the id"), search)), list);
  load();
  let due = null;
  const end = watch("keys", () => { clearTimeout(due); due = setTimeout(load, 300); });
  return () => { over = true; clearTimeout(due); end(); };
}
