// Requests to salt-api. The session is a cookie that scripts cannot read.

// Failure is an error of the server: its status and its text.
export class Failure extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

let csrf = ""; // goes with each request that changes something: the cookie alone is not enough
let lastInput = Date.now(), lastCounted = 0;
const idleAfter = 60000; // milliseconds without input after which a request is the page's, not the user's

for (const kind of ["pointerdown", "pointermove", "keydown", "wheel", "touchstart"]) addEventListener(kind, () => { lastInput = Date.now(); }, { passive: true, capture: true });

// sinceInput is the time in milliseconds since the user did something, and sinceCounted since a
// request told the server so.
export const sinceInput = () => Date.now() - lastInput;
export const sinceCounted = () => Date.now() - lastCounted;

const ended = new Set(); // what is called when the session has ended

export function onEnd(fn) { ended.add(fn); }

// The server limits the requests for data of all pages of a session, to 10 a second and 40 at once.
// A page sends fewer, so that a user who is fast, or opens a second page, waits and sees no error.
const interval = 125, burst = 30; // milliseconds between two requests for data, and how many need not wait
const repeats = 10; // of a request that was refused because there were too many

// due is the time of the next request at the rate above: requests may be sent burst intervals before
// it. The tab keeps it, because the server's count outlives a reload, too.
const dueKey = "brine-due";
const clock = () => performance.timeOrigin + performance.now();
let due = 0;
try { due = Math.min(Number(sessionStorage.getItem(dueKey)) || 0, clock() + burst * interval); } catch { /* no storage: as for a new tab */ }

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function paced() {
  const now = clock();
  due = Math.max(due + interval, now);
  try { sessionStorage.setItem(dueKey, String(due)); } catch { /* a reload is then a new tab */ }
  const wait = due - now - burst * interval;
  if (wait > 0) await pause(wait);
}

// request is fetch, repeated while the server has too many requests and says when to repeat them.
// It has not carried out those.
async function request(path, o) {
  for (let i = 0; ; i++) {
    if (/^(look|\.\.\/v1)\//.test(path)) await paced();
    const r = await fetch(path, o);
    const wait = Number(r.headers.get("Retry-After"));
    if (r.status !== 429 || !(wait > 0 && wait <= 2) || i >= repeats) return r;
    await pause(wait * 1000);
  }
}

async function send(path, o) {
  let r;
  const headers = { Accept: "application/json", ...(o || {}).headers };
  if (csrf && (o || {}).method) headers["X-Csrf-Token"] = csrf;
  if (sinceInput() > idleAfter) headers["X-Brine-Idle"] = "1";
  else lastCounted = Date.now();
  try {
    r = await request(path, { credentials: "same-origin", ...o, headers });
  } catch {
    throw new Failure(0, "The server does not answer.");
  }
  let body = null;
  try { body = await r.json(); } catch { /* no JSON: the status says enough */ }
  if (!r.ok) {
    if (r.status === 401 && path !== "../login") {
      // A 401 can also mean that the user has no permission for a function.
      const me = path === "me" ? r : await fetch("me", { credentials: "same-origin", headers: { "X-Brine-Idle": "1" } }).catch(() => null);
      if (me && me.status === 401) for (const fn of ended) fn();
    }
    throw new Failure(r.status, (body && typeof body.return === "string" && body.return) || "The server answered with status " + r.status + ".");
  }
  return body;
}

export const boot = () => send("boot");

// me reads who the session's user is, and what it may do.
export async function me() {
  const d = await send("me");
  csrf = d.csrf || "";
  return d;
}

// calls are the last reads of a page, the newest first: {fun, args} of runners, and {path} below /v1.
export const calls = [];
const maxCalls = 8;

function note(call) {
  const name = (c) => c.fun || c.path.split("?")[0];
  const same = calls.findIndex((c) => name(c) === name(call));
  if (same >= 0) calls.splice(same, 1);
  calls.unshift(call);
  calls.length = Math.min(calls.length, maxCalls);
}

// look reads what the master knows, by a function of the runner fleet.
export async function look(fun, args) {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(args || {})) if (v !== "" && v !== null && v !== undefined) q.set(k, v);
  note({ fun: "fleet." + fun, args: [...q] });
  return (await send("look/" + fun + "?" + q)).return;
}

// read reads a path below /v1, and remove deletes what it names.
export const read = (path) => { note({ path }); return send("../v1/" + path); };
export const remove = (path) => send("../v1/" + path, { method: "DELETE" });
export const write = (path, data) => send("../v1/" + path, json(data));

const json = (data) => ({ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(data) });

export async function login(username, password, eauth) {
  const o = json({ username, password, eauth });
  if (!username) o.body = JSON.stringify({ password, eauth }); // the token has the name
  o.headers["X-Brine-Console"] = "1";
  const got = (await send("../login", o)).return[0];
  csrf = got.csrf || "";
  return got;
}

export async function logout() {
  await send("../logout", json({}));
  csrf = "";
}

// run runs a chunk of low data.
export async function run(chunk) {
  return (await send("../", json(chunk))).return[0];
}

// wheel runs a wheel function and returns its return.
export async function wheel(fun, args) {
  const answer = await run({ client: "wheel", fun, ...args });
  const data = (answer || {}).data || {};
  if (data.success === false) throw new Failure(500, String(data.return));
  return data.return;
}
