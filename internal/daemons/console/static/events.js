import { h, fill, row, table } from "./dom.js";
import { store, watch, changed } from "./store.js";
import { tree } from "./result.js";
import { address, plain, when } from "./text.js";

// shapeOf returns what events of one kind have in common: the tag without job ids and minions.
const shapeOf = (tag) => tag.replace(/\d{20}/g, "*").replace(/\/ret\/.*/, "/ret/*").replace(/\/prog\/.*/, "/prog/*").replace(/^(salt\/minion|minion)\/[^/]+/, "$1/*");

const maxRows = 200; // of the newest events that pass the filter

// glob makes a pattern of a filter: with * or ? for the whole tag, else a part of the
// tag or of the data.
function filterOf(text) {
  if (!text) return () => true;
  if (/[*?]/.test(text)) {
    const re = new RegExp("^" + text.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".") + "$");
    return (e) => re.test(e.tag);
  }
  return (e) => e.tag.includes(text) || JSON.stringify(e.data).includes(text);
}

// events shows the events of the bus as they happen.
export function events(main, { query, user }) {
  const filter = h("input", { id: "f-tag", class: "filter", value: query.get("tag") || "", placeholder: "salt/job/*/ret/*" });
  const pause = h("button", { type: "button", id: "pause", "aria-pressed": "false" }, "Pause");
  const collapse = h("input", { type: "checkbox", id: "collapse", checked: query.get("collapse") === "1" });
  const clear = h("button", { type: "button", id: "clear" }, "Clear");
  const counts = h("p", { class: "quiet", id: "counts" }), list = table("Events", ["Time", "Tag", "Data"], []);
  const body = list.querySelector("tbody");
  const rows = new Map(); // by event

  const rowOf = (e) => {
    const short = plain(e.data).slice(0, 300);
    const place = h("details", {}, h("summary", { class: "data" }, short.length > 160 ? short.slice(0, 160) + "\u2026" : short));
    place.addEventListener("toggle", () => { if (place.open && place.children.length === 1) place.append(tree(e.data)); });
    const parts = e.tag.split("/");
    const tag = parts[1] === "job" && parts.length > 3 ? h("a", { class: "data", href: "#/jobs/" + address(parts[2]) }, e.tag) : h("span", { class: "data" }, e.tag);
    return row([when(e.at), [tag, h("span", { class: "quiet times" })], place], { "data-tag": e.tag });
  };
  let shown = 0;
  const count = () => fill(counts, store.events.length + " events are kept, the newest " + shown + " that pass the filter are shown." +
    (store.skipped > 0 ? " " + store.skipped + " came faster than the console shows and were left out." : "") +
    (store.paused ? " Paused: " + store.missed + " that came since then are left out." : ""));
  const draw = () => {
    const fits = filterOf(filter.value);
    const want = [], times = new Map(); // of the newest event of each shape: how many there are
    const newest = new Map();
    for (let i = store.events.length - 1; i >= 0; i--) {
      const e = store.events[i];
      if (!fits(e)) continue;
      const shape = collapse.checked ? shapeOf(e.tag) : e;
      if (newest.has(shape)) {
        times.set(newest.get(shape), times.get(newest.get(shape)) + 1);
        continue;
      }
      if (want.length === maxRows) {
        if (!collapse.checked) break;
        continue;
      }
      newest.set(shape, e);
      times.set(e, 1);
      want.push(e);
    }
    const keep = new Set(want);
    for (const [e, r] of rows) if (!keep.has(e)) { r.remove(); rows.delete(e); }
    want.forEach((e, i) => {
      let r = rows.get(e);
      if (!r) rows.set(e, r = rowOf(e));
      const n = times.get(e) > 1 ? " \u00d7 " + times.get(e) : "";
      if (r.querySelector(".times").textContent !== n) r.querySelector(".times").textContent = n;
      if (body.children[i] !== r) body.insertBefore(r, body.children[i] || null);
    });
    shown = want.length;
    count();
  };
  const remember = () => {
    const q = new URLSearchParams([...(filter.value ? [["tag", filter.value]] : []), ...(collapse.checked ? [["collapse", "1"]] : [])]);
    history.replaceState(null, "", "#/events" + (q.size ? "?" + q : ""));
    draw();
  };
  const setPaused = (on) => {
    store.paused = on;
    store.missed = 0;
    pause.setAttribute("aria-pressed", String(on));
    fill(pause, on ? "Continue" : "Pause");
    draw();
  };
  pause.addEventListener("click", () => setPaused(!store.paused));
  clear.addEventListener("click", () => { store.events = []; store.eventBytes = 0; store.skipped = 0; changed("events"); draw(); });
  filter.addEventListener("input", () => {
    remember();
  });
  collapse.addEventListener("change", remember);
  fill(main, h("h1", {}, "Events"), !user.all_events && h("p", { class: "quiet" }, "You see the events of your own jobs. The permission for the runner state.event shows all."),
    h("div", { class: "fields" }, h("div", { class: "grow" }, h("label", { for: "f-tag" }, "Pattern of the tag, or a part of the event"), filter), h("label", { class: "check" }, collapse, " Collapse repeats"), pause, clear), counts, list);
  setPaused(store.paused);
  const end = watch("events", () => { if (store.paused) count(); else draw(); });
  return () => { end(); store.paused = false; };
}
