import { h, fill } from "./dom.js";
import { login, logout } from "./api.js";

// signIn shows the form, and calls done after a sign-in.
export function signIn(app, server, done) {
  const error = h("p", { class: "error", role: "alert" });
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
      if (Object.keys(got.perms).length === 0) {
        await logout();
        throw new Error("The password is right, but external_auth grants you nothing.");
      }
      await done();
    } catch (x) {
      fill(error, x.status === 401 ? "The name or the password is wrong." : x.message);
      password.focus();
    } finally {
      button.disabled = false;
    }
  };
  fill(app, h("main", { class: "sign", id: "main", tabindex: "-1" }, h("h1", {}, "Brine console"),
    server.eauth.length === 0 && h("p", { class: "error" }, "This master has no external_auth: there is no way to sign in."),
    h("form", { on: { submit } },
      h("label", { for: "username" }, "User"), name,
      h("label", { for: "password" }, "Password"), password,
      h("label", { for: "eauth" }, "System"), system,
      button, error)));
  name.focus();
}
