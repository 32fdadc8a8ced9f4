// The end of a session whose user does nothing. The server ends it as well.

import { h, fill, ask } from "./dom.js";
import { me, sinceInput, sinceCounted } from "./api.js";

const warning = 60; // seconds before the end; less if the whole time is short
const ping = 60000; // milliseconds between two requests that tell the server of input

// watchIdle calls end after seconds without input. One minute before, it asks whether the user is
// there; any input is an answer. The returned function stops it. 0 seconds are no limit.
export function watchIdle(seconds, end) {
  if (!seconds) return () => {};
  let asked = null;
  const left = h("p", { role: "timer" });
  const close = () => { if (asked) asked.remove(); asked = null; };
  const timer = setInterval(() => {
    const rest = Math.ceil(seconds - sinceInput() / 1000);
    if (rest <= 0) {
      close();
      clearInterval(timer);
      end();
    } else if (rest <= Math.min(warning, seconds / 2)) {
      fill(left, "You will be signed out in " + rest + (rest === 1 ? " second." : " seconds."));
      if (!asked) {
        ask("Are you there?", left, "Stay signed in").then(close);
        asked = left.closest("dialog");
      }
    } else {
      close();
      if (sinceInput() < ping && sinceCounted() > ping / 2) me().catch(() => {});
    }
  }, 1000);
  return () => { clearInterval(timer); close(); };
}
