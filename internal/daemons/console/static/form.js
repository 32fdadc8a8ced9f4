// The form of a function's arguments, made from its declaration. The line, as on a command line, stays
// what is run: a field changes its own words of the line only, so that both keep what was entered.

import { h, fill } from "./dom.js";
import { words, quoted } from "./words.js";
import { plain } from "./text.js";

const keyword = /^([\p{L}_][\p{L}\p{N}_.-]*)=(?!=)([^\n]*)\n?$/u;
const nameForm = /^[\p{L}_][\p{L}\p{N}_.-]*$/u;
const few = 8; // arguments that are shown at once; of more the optional ones are below a heading

// items reads a line: a list of {name, text}, where name is null for arguments by position.
export function items(line) {
  return words(line).map((w) => {
    const m = keyword.exec(w);
    return m ? { name: m[1], text: m[2] } : { name: null, text: w };
  });
}

// asWords writes items as a line.
export const asWords = (list) => list.map((i) => quoted(i.name === null ? i.text : i.name + "=" + i.text)).join(" ");

// place finds the item of each argument, those by position that are further ones, and the others.
export function place(list, params, varargs) {
  const given = new Map(), rest = [], others = [];
  const byPlace = params.filter((p) => !p.keyword), names = new Set(params.map((p) => p.name));
  let n = 0;
  for (const i of list) {
    if (i.name === null && n < byPlace.length) given.set(byPlace[n++].name, i);
    else if (i.name === null && varargs) rest.push(i);
    else if (i.name !== null && names.has(i.name) && !given.has(i.name)) given.set(i.name, i);
    else others.push(i);
  }
  return { given, rest, others };
}

// named makes keywords of the arguments by position from one on.
function named(list, params, from) {
  const byPlace = params.filter((p) => !p.keyword);
  list.filter((i) => i.name === null).forEach((i, n) => { if (n >= from && byPlace[n]) i.name = byPlace[n].name; });
}

// put sets the text of one argument, or removes it if the text is empty.
export function put(list, params, varargs, p, text) {
  const { given, rest } = place(list, params, varargs);
  const at = given.get(p.name), byPlace = params.filter((x) => !x.keyword), n = byPlace.indexOf(p);
  if (at && text === "") {
    if (at.name === null && rest.length > 0) { at.text = ""; return; } // the place is needed
    if (at.name === null) named(list, params, n + 1);
    list.splice(list.indexOf(at), 1);
  } else if (at) {
    at.text = text;
    if (at.name === null && keyword.test(text) && rest.length === 0) named(list, params, n);
  } else if (text !== "") {
    const count = list.filter((i) => i.name === null).length;
    const last = list.findLastIndex((i) => i.name === null);
    if (n === count && (varargs || !("default" in p)) && !keyword.test(text)) list.splice(last + 1, 0, { name: null, text });
    else list.push({ name: p.name, text });
  }
}

// typed are texts that YAML reads as something else than this string.
const typed = /^([-+.]?[\d.][\d._,:eExXoObBa-fA-F+-]*|[-+]?\.(inf|nan)|true|false|yes|no|on|off|null|none|~|=|<<|[[{"'|>!&*%@`?].*|\s.*|.*\s)$/is;

// encode writes the text of a field as on the command line: a string stays one.
export function encode(kind, text) {
  return kind === "str" && typed.test(text) && !/[#\t\r\n]/.test(text) ? JSON.stringify(text) : text;
}

// decode reads what encode has written, and leaves everything else as it is.
export function decode(kind, text) {
  if (kind !== "str" || !text.startsWith('"')) return text;
  try {
    const s = JSON.parse(text);
    return typeof s === "string" && s !== "" && encode(kind, s) === text ? s : text;
  } catch { return text; }
}

// flow checks a list or map of YAML in brackets, as the arguments of a command line have them. It
// returns what is wrong, or "".
export function flow(s) {
  let i = 0;
  const blank = () => { while (s[i] === " ") i++; };
  const quote = () => {
    const q = s[i++];
    for (; i < s.length; i++) {
      if (q === '"' && s[i] === "\\") i++;
      else if (s[i] === q && q === "'" && s[i + 1] === q) i++;
      else if (s[i] === q) { i++; return; }
    }
    throw new Error("a quote is not closed");
  };
  const text = () => {
    const from = i;
    while (i < s.length && !/[,[\]{}]/.test(s[i]) && !(s[i] === ":" && (i + 1 === s.length || /[ ,[\]{}]/.test(s[i + 1])))) i++;
    return i > from;
  };
  const node = () => {
    blank();
    if (s[i] === "[" || s[i] === "{") return parts(s[i++] === "[" ? "]" : "}");
    if (s[i] === '"' || s[i] === "'") { quote(); return true; }
    return text();
  };
  const parts = (end) => {
    for (;;) {
      const some = node();
      blank();
      const pair = s[i] === ":";
      if (pair) { i++; node(); blank(); }
      if (s[i] === end) { i++; return true; }
      if (i >= s.length) throw new Error("a " + end + " is missing at the end");
      if (s[i] !== ",") throw new Error("character " + (i + 1) + " (" + s[i] + ") does not belong there");
      if (!some && !pair) throw new Error("nothing stands before the comma at character " + (i + 1));
      i++;
    }
  };
  try {
    node();
    blank();
  } catch (e) { return e.message; }
  return i < s.length ? "character " + (i + 1) + " (" + s[i] + ") does not belong there" : "";
}

// problem returns what is wrong with the text of an argument, or "".
export function problem(p, text) {
  const t = text.trim();
  if ("default" in p && /^(none|null|~)$/i.test(t)) return "";
  switch (p.kind) {
    case "int": return /^[-+]?\d+(\.0*)?$/.test(t) ? "" : "must be a whole number, such as 5";
    case "number": return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(t) ? "" : "must be a number, such as 2.5";
    case "dict": return !t.startsWith("{") ? "must be a map in braces, such as {name: value}" : flow(t) && "is no valid YAML: " + flow(t);
    case "list": return !t.startsWith("[") ? "must be a list in brackets, such as [a, b]" : flow(t) && "is no valid YAML: " + flow(t);
    case "items": return t.startsWith("[") && flow(t) ? "is no valid YAML: " + flow(t) : "";
  }
  return "";
}

const maxArguments = 200; // of a function that a minion describes

// fromSpec makes declarations of what sys.argspec returns. A minion may have said anything: names that no
// line of arguments can have are left out.
export function fromSpec(spec) {
  const args = spec && Array.isArray(spec.args) ? spec.args : [], defaults = spec && Array.isArray(spec.defaults) ? spec.defaults : [];
  return args.slice(0, maxArguments).map((name, i) => {
    const k = i - (args.length - defaults.length);
    return { name, kind: k >= 0 && typeof defaults[k] === "boolean" ? "bool" : "any", doc: "", ...(k >= 0 ? { default: defaults[k] } : {}) };
  }).filter((p) => typeof p.name === "string" && nameForm.test(p.name));
}

const hints = { int: "a whole number", number: "a number", list: "a list: [a, b]", items: "one item, or a list: [a, b]", dict: "a map: {name: value}", bool: "", str: "", any: "" };
// shown writes a default as on a command line.
const shown = (v) => (v === null ? "None" : v === true ? "True" : v === false ? "False" : plain(v) === "" ? "empty" : plain(v).slice(0, 80));

// argumentForm makes the form of the words in the field line; changed is called after it has changed them.
// show takes a declaration {params, varargs, kwargs}, and more: {title, params}, arguments by name only; names
// are suggestions for further ones, and options those for the values of arguments by name.
export function argumentForm(line, changed) {
  const box = h("div", { id: "arg-form" });
  const known = h("datalist", { id: "arg-names" });
  let spec = null, list = [], fields = [], rows = h("div", { id: "arg-rows" }), restField = null;

  const all = () => [...spec.params, ...((spec.more && spec.more.params) || []).map((p) => ({ ...p, keyword: true }))];
  const write = () => { line.value = asWords(list); check(); changed(); };

  const optionsOf = (p) => (spec.options && Object.hasOwn(spec.options, p.name) ? spec.options[p.name] : null);

  // field makes the input of one argument.
  const field = (p, item) => {
    const id = "argument-" + p.name, text = item ? decode(p.kind, item.text) : "";
    const required = !("default" in p);
    let input;
    const edit = () => { put(list, all(), spec.varargs, p, encode(p.kind, input.value)); write(); };
    const about = { id, "data-arg": p.name, "aria-describedby": id + "-doc " + id + "-error", "aria-required": required ? "true" : null };
    if (p.kind === "bool") {
      const usual = [["", required ? "choose" : "default (" + shown(p.default) + ")"], ["True", "True"], ["False", "False"]];
      const same = usual.find(([v]) => v.toLowerCase() === text.toLowerCase());
      input = h("select", { ...about, on: { change: edit } }, [...usual, ...(same ? [] : [[text, text]])].map(([v, t]) => h("option", { value: v }, t)));
      input.value = same ? same[0] : text;
    } else {
      const options = optionsOf(p);
      input = h("input", { ...about, value: text, spellcheck: "false", autocapitalize: "none", autocomplete: "off", list: options ? id + "-list" : null,
        inputmode: p.kind === "int" ? "numeric" : p.kind === "number" ? "decimal" : null, class: /^(list|items|dict)$/.test(p.kind) ? "data" : null,
        placeholder: item && text === "" ? "empty text" : required ? null : shown(p.default), on: { input: edit } });
    }
    const hint = [hints[p.kind], p.ignored && "accepted, but not used: " + p.ignored, p.kind !== "bool" && !required && "default: " + shown(p.default)].filter(Boolean).join("; ");
    const error = h("span", { class: "error", id: id + "-error" });
    fields.push({ p, input, error });
    return h("div", { class: "argument" }, h("label", { for: id }, h("span", { class: "data" }, p.name), required && h("strong", {}, " required")), input, error,
      h("div", { class: "quiet doc", id: id + "-doc" }, [p.doc, hint].filter(Boolean).join(" \u2013 ")),
      optionsOf(p) && h("datalist", { id: id + "-list" }, optionsOf(p).map((o) => h("option", { value: o }))));
  };

  // other makes the row of an argument that is not declared.
  const other = (item) => {
    const n = rows.children.length, id = "more-" + n + "-" + Math.random().toString(36).slice(2, 8);
    const name = h("input", { id: id + "-name", value: item.name || "", list: "arg-names", spellcheck: "false", autocapitalize: "none", autocomplete: "off", "aria-describedby": id + "-error",
      on: { input: () => edit(), change: () => { if (all().some((p) => p.name === name.value)) draw(); } } });
    const text = h("input", { id: id + "-value", value: item.text, spellcheck: "false", autocapitalize: "none", autocomplete: "off", "aria-describedby": id + "-error", on: { input: () => edit() } });
    const error = h("span", { class: "error", id: id + "-error" });
    const edit = () => {
      // Without a name it is an argument by position, or nothing yet.
      item.name = name.value === "" && list.includes(item) && item.name === null ? null : name.value;
      item.text = text.value;
      if (!list.includes(item) && nameForm.test(item.name || "")) list.push(item);
      else if (list.includes(item) && item.name !== null && !nameForm.test(item.name)) list.splice(list.indexOf(item), 1);
      write();
    };
    const row = h("div", { class: "fields other", role: "group", "aria-label": "Further argument" },
      h("div", {}, h("label", { for: name.id }, "Name"), name), h("div", { class: "grow" }, h("label", { for: text.id }, "Value"), text),
      h("button", { type: "button", "aria-label": "Remove the argument " + (item.name || item.text), on: { click: () => {
        if (list.includes(item)) list.splice(list.indexOf(item), 1);
        row.remove();
        write();
        add.focus();
      } } }, "Remove"), error);
    row.about = { item, name, error, text };
    return row;
  };
  const add = h("button", { type: "button", id: "arg-add", on: { click: () => {
    const row = other({ name: "", text: "" });
    rows.append(row);
    row.about.name.focus();
  } } }, "Add an argument by name");

  // check shows what is wrong, each at its field, and returns the fields.
  const check = () => {
    const { given, others } = place(list, all(), spec.varargs);
    const bad = [];
    const mark = (inputs, error, name, text) => {
      for (const i of inputs) {
        if (text) i.setAttribute("aria-invalid", "true");
        else i.removeAttribute("aria-invalid");
      }
      if (error.textContent !== (text ? name + " " + text : "")) fill(error, text && name + " " + text);
      if (text) bad.push({ name, input: inputs[0] });
    };
    for (const { p, input, error } of fields) {
      const item = given.get(p.name);
      mark([input], error, p.name, item ? problem(p, item.text) : "default" in p ? "" : "is required");
    }
    for (const row of rows.children) {
      const { item, name, error } = row.about;
      const label = name.value || "An argument";
      const text = name.value && !nameForm.test(name.value) ? "is no name of an argument" : item.name === null ? "is one more than the function takes: " + item.text :
        !item.name ? (item.text ? "has no name" : "") : given.has(item.name) && others.includes(item) ? "is given twice" :
          !spec.kwargs && others.includes(item) ? "is no argument of the function" : "";
      mark([name], error, label, text);
    }
    if (restField) {
      const missing = spec.params.filter((p) => !p.keyword).find((p) => !(given.get(p.name) && given.get(p.name).name === null));
      restField.input.disabled = Boolean(missing);
      fill(restField.note, missing ? "Fill in " + missing.name + " first." : "as on a command line");
    }
    return bad;
  };

  const draw = () => {
    fields = [];
    const { given, rest, others } = place(list, all(), spec.varargs);
    const usable = (p) => !p.ignored || given.has(p.name);
    const params = spec.params.filter(usable);
    const many = params.length > few;
    const first = many ? params.filter((p) => !("default" in p) || given.has(p.name)) : params;
    const later = many ? params.filter((p) => !first.includes(p)) : [];
    const grid = (l) => h("div", { class: "arguments" }, l.map((p) => field(p, given.get(p.name))));
    let further = null;
    restField = null;
    if (spec.varargs) {
      const note = h("div", { class: "quiet doc", id: "arg-rest-doc" });
      const error = h("span", { class: "error", id: "arg-rest-error" });
      const input = h("input", { id: "arg-rest", value: asWords(rest), spellcheck: "false", autocapitalize: "none", "aria-describedby": "arg-rest-doc arg-rest-error", on: { change: () => {
        let more;
        try { more = items(input.value); } catch (e) { fill(error, e.message); return; }
        fill(error);
        const old = place(list, all(), true).rest;
        list = list.filter((i) => !old.includes(i));
        const last = list.findLastIndex((i) => i.name === null);
        list.splice(last + 1, 0, ...more);
        write();
        if (more.some((i) => i.name !== null)) draw();
      } } });
      restField = { input, note };
      further = h("div", { class: "argument" }, h("label", { for: "arg-rest" }, "Further arguments"), input, error, note);
    }
    const more = spec.more && spec.more.params.filter((p) => !spec.params.some((q) => q.name === p.name)).map((p) => ({ ...p, keyword: true }));
    rows = h("div", { id: "arg-rows" });
    fill(box, first.length > 0 || later.length > 0 || spec.varargs || spec.kwargs ? null : h("p", { class: "quiet" }, "The function has no arguments."),
      grid(first), further,
      later.length > 0 && h("details", { id: "arg-later" }, h("summary", {}, later.length + " optional arguments"), grid(later)),
      more && h("fieldset", { id: "arg-more" }, h("legend", {}, spec.more.title), grid(more.filter((p) => !("default" in p) || given.has(p.name))),
        h("details", {}, h("summary", {}, "Optional arguments"), grid(more.filter((p) => "default" in p && !given.has(p.name))))),
      rows, spec.kwargs && add, known);
    for (const i of others) rows.append(other(i));
    fill(known, (spec.names || []).map((n) => h("option", { value: n })));
    check();
  };

  return {
    box,
    // show takes the words of the line and draws the form; it throws where the line is no list of words.
    show(declared) {
      list = items(line.value);
      spec = declared;
      draw();
    },
    // problems returns the fields with errors.
    problems: () => (spec ? check() : []),
  };
}
