import { h, fill } from "./dom.js";
import { login, logout } from "./api.js";

// A sign-in at an OpenID provider: this page makes a secret verifier, sends the browser to the
// provider with its hash, and gets a code in the address when the provider sends it back. The
// master exchanges the code with the verifier for a token of the provider (PKCE).

const storeKey = "oidc";

const base64url = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const secret = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

async function toProvider() {
  const o = { state: secret(), verifier: secret(), nonce: secret(), hash: location.hash, at: Date.now() };
  const challenge = base64url(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(o.verifier))));
  sessionStorage.setItem(storeKey, JSON.stringify(o));
  location.assign("oidc?" + new URLSearchParams({ state: o.state, challenge, nonce: o.nonce }));
}

const maxAge = 15 * 60000; // of a sign-in that has begun

// fromProvider ends a sign-in at the provider, if the address says that it has sent the browser
// back. It throws an Error that tells the user what is wrong.
export async function fromProvider() {
  const q = new URLSearchParams(location.search);
  if (!q.has("state")) return false;
  let o = null;
  try { o = JSON.parse(sessionStorage.getItem(storeKey)); } catch { /* like none */ }
  sessionStorage.removeItem(storeKey);
  history.replaceState(null, "", location.pathname + ((o || {}).hash || "")); // the code is a secret
  if (!o || o.state !== q.get("state") || Date.now() - o.at > maxAge) throw new Error("This sign-in did not begin here, or too long ago: try again.");
  if (q.has("error")) throw new Error("The OpenID provider refused: " + (q.get("error_description") || q.get("error")));
  try {
    await grants(await login("", new URLSearchParams({ code: q.get("code") || "", code_verifier: o.verifier, nonce: o.nonce }).toString(), "oidc"));
  } catch (e) {
    throw e.status === 401 ? new Error("The master does not accept what the OpenID provider sent.") : e;
  }
  return true;
}

// grants ends the session of a user without any permission.
async function grants(got) {
  if (Object.keys(got.perms).length > 0) return;
  await logout();
  throw new Error("The password is right, but external_auth grants you nothing.");
}

// signIn shows the form, and calls done after a sign-in.
export function signIn(app, server, done, problem) {
  const error = h("p", { class: "error", role: "alert" }, problem);
  const name = h("input", { id: "username", name: "username", autocomplete: "username", autocapitalize: "none", spellcheck: "false", required: true });
  const password = h("input", { id: "password", name: "password", type: "password", autocomplete: "current-password", required: true });
  const system = h("select", { id: "eauth", name: "eauth" }, server.eauth.map((s) => h("option", { value: s }, s)));
  const button = h("button", { type: "submit", class: "main", id: "sign-in" }, "Sign in");
  const needs = () => { name.required = system.value !== "oidc"; };
  system.addEventListener("change", needs);
  needs();
  const submit = async (e) => {
    e.preventDefault();
    button.disabled = true;
    fill(error);
    try {
      const got = await login(name.value, password.value, system.value);
      password.value = "";
      await grants(got);
      await done();
    } catch (x) {
      fill(error, x.status === 401 ? "The name or the password is wrong." : x.message);
      password.focus();
    } finally {
      button.disabled = false;
    }
  };
  fill(app, h("main", { class: "sign", id: "main", tabindex: "-1" }, h("h1", {}, "Brine console"),
    server.door && h("p", {}, "To come in without a password, open the link that brine console has printed last."),
    server.eauth.length === 0 && !server.door && h("p", { class: "error" }, "This master has no external_auth: there is no way to sign in."),
    server.oidc && (crypto.subtle ? h("button", { type: "button", id: "provider", on: { click: () => toProvider().catch((x) => fill(error, x.message)) } }, "Sign in with OpenID") :
      h("p", { class: "quiet" }, "Sign-in with OpenID needs an https address.")),
    h("form", { on: { submit } },
      h("label", { for: "username" }, "User"), name,
      h("label", { for: "password" }, "Password"), password,
      h("label", { for: "eauth" }, "System"), system,
      button, error)));
  name.focus();
}
