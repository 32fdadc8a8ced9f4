// Requests to salt-api. The session is a cookie that scripts cannot read.

// Failure is an error of the server: its status and its text.
export class Failure extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

const ended = new Set(); // what is called when the session has ended

export function onEnd(fn) { ended.add(fn); }

async function send(path, o) {
  let r;
  try {
    r = await fetch(path, { credentials: "same-origin", ...o, headers: { Accept: "application/json", ...(o || {}).headers } });
  } catch {
    throw new Failure(0, "The server does not answer.");
  }
  let body = null;
  try { body = await r.json(); } catch { /* no JSON: the status says enough */ }
  if (!r.ok) {
    if (r.status === 401 && path !== "../login") {
      // A 401 can also mean that the user has no permission for a function.
      const me = path === "me" ? r : await fetch("me", { credentials: "same-origin" }).catch(() => null);
      if (me && me.status === 401) for (const fn of ended) fn();
    }
    throw new Failure(r.status, (body && typeof body.return === "string" && body.return) || "The server answered with status " + r.status + ".");
  }
  return body;
}

export const boot = () => send("boot");
export const me = () => send("me");

// look reads what the master knows, by a function of the runner fleet.
export async function look(fun, args) {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(args || {})) if (v !== "" && v !== null && v !== undefined) q.set(k, v);
  return (await send("look/" + fun + "?" + q)).return;
}

// read reads a path below /v1, and remove deletes what it names.
export const read = (path) => send("../v1/" + path);
export const remove = (path) => send("../v1/" + path, { method: "DELETE" });

const json = (data) => ({ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(data) });

export async function login(username, password, eauth) {
  return (await send("../login", json({ username, password, eauth }))).return[0];
}

export const logout = () => send("../logout", json({}));

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

// command starts a job. The words of its arguments are read as on a command line.
export async function command(tgt, tgt_type, fun, words) {
  const form = new URLSearchParams({ client: "local_async", tgt, tgt_type, fun });
  for (const w of words) form.append("arg", w);
  return (await send("../", { method: "POST", body: form })).return[0];
}
