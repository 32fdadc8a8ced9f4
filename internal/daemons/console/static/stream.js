// The stream of the server: the topology and its changes, and events. It is opened again
// when it ends. Everything is sent again then, so that nothing is missed.

import { store, changed, takeEvents, takeTopology } from "./store.js";
import { me } from "./api.js";

const silence = 45000; // milliseconds: the server says something every 30 seconds
const pause = 1000; // between attempts

let source = null, timer = null, lostAt = 0, others = [];

export function open(masters) {
  others = masters;
  close();
  connect();
}

export function close() {
  clearTimeout(timer);
  timer = null;
  if (source) source.close();
  source = null;
}

function connect() {
  const s = new EventSource("stream");
  source = s;
  const heard = () => { clearTimeout(timer); timer = setTimeout(() => lost(s), silence); };
  const on = (name, fn) => s.addEventListener(name, (e) => {
    if (s !== source) return;
    heard();
    fn(JSON.parse(e.data));
  });
  s.addEventListener("open", () => {
    if (s !== source) return;
    heard();
    const again = lostAt > 0;
    lostAt = 0;
    store.connected = true;
    changed("connection", again);
  });
  s.addEventListener("error", () => lost(s));
  on("topology", takeTopology);
  on("bus", takeEvents);
  on("alive", () => {});
}

function lost(s) {
  if (s !== source) return;
  s.close();
  source = null;
  store.connected = false;
  if (lostAt === 0) lostAt = Date.now();
  changed("connection");
  clearTimeout(timer);
  timer = setTimeout(retry, pause);
}

async function retry() {
  try {
    await me(); // tells api.js if the session has ended
  } catch (e) {
    if (e.status === 401) return;
    if (e.status === 0 && await elsewhere()) return;
  }
  if (!source) connect();
}

// elsewhere goes to the console of another master that works, with the same page. The
// user signs in there: sessions belong to one server.
async function elsewhere() {
  if (Date.now() - lostAt < 2 * pause) return false;
  for (const base of others) {
    if (base === location.origin) continue;
    try {
      const r = await fetch(base + "/health", { credentials: "omit", cache: "no-store", signal: AbortSignal.timeout(3000) });
      if (r.ok) {
        location.assign(base + "/console/" + location.hash);
        return true;
      }
    } catch { /* it does not answer either */ }
  }
  return false;
}
