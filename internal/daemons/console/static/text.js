// Text that others have written (ids, grains, returns, tags) may have control characters,
// sequences for terminals, marks that change the direction of text, and huge lines. All of
// it is shown, as text, and bounded.

const maxLine = 2000; // characters of a line
const maxAll = 100000; // characters of a text

// hostile are characters that change how others look, or are not seen: controls but tab
// and line feed, marks of direction, characters without width, separators of lines, and tags.
const hostile = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|[\ud800-\udfff]/gu;

function named(c) {
  const n = c.codePointAt(0);
  if (n < 0x20) return String.fromCodePoint(0x2400 + n);
  if (n === 0x7f) return "\u2421";
  return "\u27e8U+" + n.toString(16).toUpperCase().padStart(4, "0") + "\u27e9";
}

// visible makes a text harmless to look at.
export function visible(s) {
  if (s.length > maxAll) s = s.slice(0, maxAll) + "\n\u2026 " + (s.length - maxAll) + " more characters";
  if (s.length > maxLine) {
    s = s.split("\n").map((l) => (l.length > maxLine ? l.slice(0, maxLine) + " \u2026 " + (l.length - maxLine) + " more characters in this line" : l)).join("\n");
  }
  return s.replace(hostile, named);
}

// address encodes a text as part of an address. Halves of characters, which encodeURIComponent
// refuses, are replaced.
export function address(s) {
  return encodeURIComponent(String(s).replace(/[\ud800-\udfff]/gu, "\ufffd"));
}

// plain writes a value on one line.
export function plain(v) {
  if (typeof v === "string") return v;
  return JSON.stringify(v) ?? "";
}

// choice reads what the user has chosen on the page Settings, choose keeps it. It belongs to the
// browser: the master has no record of it.
export function choice(name) {
  try { return localStorage.getItem(name) || ""; } catch { return ""; }
}
export function choose(name, value) {
  try {
    if (value) localStorage.setItem(name, value);
    else localStorage.removeItem(name);
  } catch { /* it lasts for this page then */ }
}

const zone = () => (choice("times") === "utc" ? { timeZone: "UTC" } : {});

// when shows the time of a day, and date a day and a time, in the browser's zone or in UTC.
export function when(t) {
  const d = new Date(t);
  return isNaN(d.getTime()) ? "" : d.toLocaleTimeString(undefined, zone());
}
export function date(t) {
  const d = new Date(t);
  return isNaN(d.getTime()) ? "" : d.toLocaleString(undefined, { ...zone(), timeZoneName: "short" });
}

// recent shows the time alone of today, else also the day.
export function recent(t) {
  const day = (d) => d.toLocaleDateString(undefined, zone());
  return day(new Date(t)) === day(new Date()) ? when(t) : date(t);
}
