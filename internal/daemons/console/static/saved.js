// What users save on the master: targets, jobs and views. Names and data may come from other users.

import { h, fill, ask, say } from "./dom.js";
import { read, remove, write } from "./api.js";
import { address } from "./text.js";

let applied = ""; // the view that the page is drawn again for

const titles = { target: "Saved targets", job: "Saved jobs", view: "Saved views" };

// savedBox offers what is saved of one kind, and saves what the page shows. give returns the data to
// save, take applies saved data, fits reports whether saved data is for this page. It is null without
// the permission.
export function savedBox(kind, user, give, take, fits) {
  if (!user.may["runner.saved.list"]) return null;
  const pick = h("select", { id: "saved-" + kind }), error = h("span", { class: "error", role: "alert" });
  const drop = h("button", { type: "button", class: "remove-saved", disabled: true, "aria-label": "Remove from " + titles[kind].toLowerCase(), on: { click: () => removeOne() } }, "Remove");
  let all = [];
  const find = () => all.find((s) => s.id === pick.value);
  const mayRemove = (s) => Boolean(s) && (s.own ? user.may["runner.saved.remove"] : user.may["runner.saved.remove_any"]);
  const load = async (id) => {
    try {
      all = (await read("saved?kind=" + kind)).saved.filter((s) => !fits || fits(s.data));
      fill(error);
    } catch (e) {
      fill(error, e.message);
      return;
    }
    fill(pick, h("option", { value: "" }, all.length > 0 ? "choose one (" + all.length + ")" : "none"),
      all.map((s) => h("option", { value: s.id }, s.name + (s.own ? (s.public ? ", for all" : "") : ", by " + s.owner))));
    pick.value = all.some((s) => s.id === id) ? id : "";
    drop.disabled = !mayRemove(find());
  };
  const save = async () => {
    const now = find();
    const name = h("input", { id: "saved-name", maxlength: 100, autocomplete: "off", value: now && now.own ? now.name : "" });
    const open = h("input", { type: "checkbox", id: "saved-public", checked: Boolean(now && now.own && now.public) });
    // A new name begins as private, a known one as it is.
    name.addEventListener("input", () => { open.checked = all.some((s) => s.own && s.public && s.name === name.value.trim()); });
    if (!await ask("Save", h("div", {}, h("label", { for: "saved-name" }, "Name"), name,
      user.may["runner.saved.put_public"] && h("label", { class: "check" }, open, " All users see it")), "Save")) return;
    try {
      const got = await write("saved", { kind, name: name.value.trim(), public: open.checked, data: give() });
      await load(got.id);
      say("Saved.");
    } catch (e) {
      fill(error, e.message);
    }
  };
  const removeOne = async () => {
    const s = find();
    if (!s || !await ask("Remove", h("p", {}, "Remove ", h("strong", {}, s.name), s.own ? "?" : " of " + s.owner + "?"), "Remove", true)) return;
    try {
      await remove("saved/" + address(s.id));
      await load("");
      say("Removed.");
    } catch (e) {
      fill(error, e.message);
    }
  };
  pick.addEventListener("change", () => {
    const s = find();
    drop.disabled = !mayRemove(s);
    if (!s) return;
    applied = s.id;
    take(s.data);
    applied = "";
  });
  load(applied);
  applied = "";
  return h("div", { class: "saved words" }, h("label", { for: "saved-" + kind }, titles[kind]), pick,
    user.may["runner.saved.put"] && h("button", { type: "button", class: "save-" + kind, "aria-label": "Save a " + kind, on: { click: save } }, "Save\u2026"), drop, error);
}

// viewBox saves the filters and columns of a page. query returns its filters.
export function viewBox(page, user, query, columns) {
  return savedBox("view", user, () => ({ page, query: new URLSearchParams(Object.entries(query()).filter(([, v]) => v)).toString(), ...(columns ? { columns: columns.hidden() } : {}) }),
    (d) => {
      if (columns) columns.hide(String(d.columns || ""));
      history.pushState(null, "", "#/" + page + (d.query ? "?" + new URLSearchParams(String(d.query)) : ""));
      dispatchEvent(new HashChangeEvent("hashchange"));
    }, (d) => d.page === page);
}
