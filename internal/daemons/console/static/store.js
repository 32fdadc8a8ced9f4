// What all pages know: the masters, which of them command each minion, the last changes
// of masters, and the results of the jobs of which events have been seen. All bounded.

const maxRuns = 30, maxSteps = 500;
const maxMoves = 500, maxJobs = 50, maxResults = 10000, maxEvents = 2000, maxEventBytes = 8 << 20;

export const store = {
  here: "",
  known: false, // whether the topology has been received
  problem: "", // why it has not
  waiting: 0, // keys that the master has to accept or reject
  masters: [],
  loads: {}, // by master: how busy it is
  minions: new Map(), // by id: {state, by, standby}
  moves: [], // the newest first: {id, from, to, reason, seconds, at}
  jobs: new Map(), // by jid: {about, results: Map, minions}
  runs: new Map(), // orchestrations by jid: {about, at, steps, total, ret}
  events: [], // the newest last: {at, tag, data, size}
  eventBytes: 0,
  skipped: 0,
  connected: false,
  paused: false,
  missed: 0, // events since the pause began
};

const watchers = new Map(); // by what has changed: a set of functions

// watch calls fn after changes of one kind (topology, moves, events, jobs, connection)
// until the returned function is called. Several changes in one frame are one call.
export function watch(kind, fn) {
  let due = false;
  const call = (what) => {
    if (due) return;
    due = true;
    setTimeout(() => { due = false; if (watchers.get(kind).has(call)) fn(what); }, 50);
  };
  if (!watchers.has(kind)) watchers.set(kind, new Set());
  watchers.get(kind).add(call);
  return () => watchers.get(kind).delete(call);
}

export function changed(kind, what) {
  for (const fn of watchers.get(kind) || []) fn(what);
}

// takeTopology applies the whole topology, or what has changed in it.
export function takeTopology(d) {
  if (d.problem) {
    store.problem = d.problem;
    store.known = false;
    changed("topology");
    return;
  }
  store.loads = d.loads || {};
  if (!d.set) { // nothing else has changed
    changed("topology");
    return;
  }
  store.problem = "";
  store.known = true;
  store.here = d.here;
  store.masters = d.masters;
  store.waiting = d.keys_waiting || 0;
  if (d.full) store.minions = new Map();
  for (const [id, link] of Object.entries(d.set)) store.minions.set(id, link);
  for (const id of d.gone) store.minions.delete(id);
  changed("topology");
}

// takeEvents applies events of the bus.
export function takeEvents(batch) {
  const at = Date.now();
  for (const e of batch.events) {
    const parts = e.tag.split("/");
    if (parts[1] === "minion" && parts[3] === "master_changed") move(e.data.data || e.data, at);
    if (parts[1] === "job") jobEvent(parts, e.data);
    if (parts[1] === "run") runEvent(parts, e.data, at);
    if (e.tag === "salt/key" || e.tag === "salt/auth") changed("keys");
    if (!store.paused) {
      const size = JSON.stringify(e.data).length + e.tag.length + 100;
      store.events.push({ at, tag: e.tag, data: e.data, size });
      store.eventBytes += size;
    } else {
      store.missed++;
    }
  }
  while (store.events.length > maxEvents || store.eventBytes > maxEventBytes) store.eventBytes -= store.events.shift().size;
  if (batch.skipped > 0) {
    store.skipped += batch.skipped;
    changed("skipped");
  }
  changed("events");
}

// takeMoves adds changes of masters that were before the page was opened, and changes that it has missed.
export function takeMoves(rows) {
  for (const r of rows) {
    const at = Date.parse(r.at);
    // The page has the time at which it heard of a change, the master that of the minion's clock.
    if (!(at > 0) || store.moves.some((m) => m.id === r.id && m.to === r.to && (m.clock ? m.at === at : Math.abs(m.at - at) < 60000))) continue;
    store.moves.push({ ...r, at, clock: true });
  }
  store.moves.sort((a, b) => b.at - a.at);
  store.moves.length = Math.min(store.moves.length, maxMoves);
  changed("moves");
}

// move shows the change of a minion at once: the next topology confirms it.
function move(d, at) {
  const last = store.moves.find((m) => m.id === d.id);
  if (last && last.to === d.to && at - last.at < 5000) return; // reported by several masters
  store.moves.unshift({ id: String(d.id), from: d.from, to: d.to, reason: d.reason, seconds: d.seconds, at });
  store.moves.length = Math.min(store.moves.length, maxMoves);
  const link = store.minions.get(d.id);
  if (link) {
    const named = (name) => (store.masters.find((m) => (m.names || []).includes(name)) || { id: name }).id;
    const from = named(d.from), to = named(d.to);
    store.minions.set(d.id, { state: "up", by: [...link.by.filter((m) => m !== from && m !== to), to], standby: (link.standby || []).filter((m) => m !== to) });
    changed("topology");
  }
  changed("moves");
}

function jobOf(jid) {
  let j = store.jobs.get(jid);
  if (!j) {
    j = { about: null, results: new Map() };
    store.jobs.set(jid, j);
    if (store.jobs.size > maxJobs) store.jobs.delete(store.jobs.keys().next().value);
  }
  return j;
}

function jobEvent(parts, d) {
  const jid = parts[2];
  if (parts[3] === "new") jobOf(jid).about = d;
  else if (parts[3] === "ret" && parts.length === 5) {
    const j = jobOf(jid);
    if (j.results.size < maxResults) j.results.set(parts[4], d);
  } else if (parts[3] === "prog" && store.runs.has(jid)) {
    const r = store.runs.get(jid);
    if (r.steps.length < maxSteps && d.data) r.steps.push((d.data || {}).ret || d.data);
    else if (r.steps.length < maxSteps) r.steps.push(d.ret || d);
    r.total = d.len || (d.data || {}).len || r.total;
    changed("runs", jid);
    return;
  } else return;
  changed("jobs", jid);
}

// runEvent follows orchestrations.
function runEvent(parts, d, at) {
  const jid = parts[2], fun = String(d.fun || "");
  if (!/^runner\.state\.(orch|sls)/.test(fun)) return;
  if (!store.runs.has(jid)) {
    store.runs.set(jid, { about: d, at, steps: [], total: 0, ret: null });
    if (store.runs.size > maxRuns) store.runs.delete(store.runs.keys().next().value);
  }
  if (parts[3] === "ret") store.runs.get(jid).ret = d;
  changed("runs", jid);
}

// reset forgets what belonged to a user.
export function reset() {
  store.known = false;
  store.problem = "";
  store.waiting = 0;
  store.masters = [];
  store.minions = new Map();
  store.moves = [];
  store.jobs = new Map();
  store.runs = new Map();
  store.events = [];
  store.eventBytes = 0;
  store.skipped = 0;
}
