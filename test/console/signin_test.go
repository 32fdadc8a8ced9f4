package console

import (
	"slices"
	"strings"
	"testing"
)

// TestSignIn: users sign in with the systems that the master has, using only the keyboard. Actions
// that a user may not perform are not offered.
func TestSignIn(t *testing.T) {
	p := startProvider(t)
	s := startWith(t, p.settings(), "")
	var systems []string
	s.until("the form is there", `document.querySelector("#eauth option")`)
	s.json(&systems, `[...document.querySelectorAll("#eauth option")].map((o) => o.value)`)
	if !slices.Equal(systems, []string{"file", "oidc", "sharedsecret"}) {
		t.Errorf("systems: %v", systems)
	}

	s.signIn("amy", "wrong", "file")
	s.sees("The name or the password is wrong.")
	s.clean("401")
	s.signIn("stranger", "s3cret", "sharedsecret")
	s.sees("external_auth grants you nothing")

	// Using the keyboard: the name field has the focus.
	s.Run(nil, `location.reload();`)
	s.until("the form is there, since there is no session", `document.activeElement.id === "username"`)
	s.Type("amy", "Tab", "pa ss", "Enter")
	s.sees("Masters and their minions")
	s.until("the stream is open", `document.getElementById("connection").textContent.includes("live")`)
	var links []string
	s.json(&links, `[...document.querySelectorAll("nav a")].map((a) => a.dataset.page)`)
	if want := []string{"overview", "minions", "jobs", "run", "states", "history", "orchestrations", "schedules", "files", "events", "access",
		"audit", "settings"}; !slices.Equal(links, want) {
		t.Errorf("a user of runners sees the pages %v, want %v", links, want)
	}
	s.page("#/keys")
	s.sees("Your permissions do not include wheel key.list_all")
	s.page("#/run")
	s.sees("Your permissions include no function of minions.")

	// Scripts cannot read the session, and it outlives the page. The tab keeps the pace of its requests alone.
	if got := s.text(`document.cookie + JSON.stringify({...localStorage}) + JSON.stringify({...sessionStorage, "brine-due": ""})`); got != `{}{"brine-due":""}` {
		t.Errorf("scripts see %s", got)
	}
	s.Run(nil, `location.reload();`)
	s.until("the session is still there", `document.querySelector("#who").textContent === "amy"`)

	// Keyboard shortcuts.
	s.Type("gm")
	s.until("g m goes to the minions", `location.hash === "#/minions" && document.querySelector("h1").textContent === "Minions"`)
	s.Type("/")
	s.until("/ goes to the search", `document.activeElement.id === "f-search"`)
	s.Type("?", "Escape", "?")
	s.until("? shows the keys, but not in a field", `document.querySelector("dialog[open]") && document.querySelector("#f-search").value === "?"`)
	s.Type("Escape")
	s.until("Escape closes them", `!document.querySelector("dialog")`)

	// Without a valid session a page asks the user to sign in again.
	s.clean("401")
	if got := s.text(`(await fetch("../logout", {method: "POST", headers: {"Content-Type": "application/json"}, body: "{}"})).status`); got != "403" {
		t.Errorf("a request without the token against forgery: %s", got)
	}
	s.clean("401", "403")
	if got := s.call("POST", "../logout", 1); got != 200 {
		t.Errorf("logout: %d", got)
	}
	s.page("#/jobs")
	s.sees("System")
	if body := s.text("document.body.innerText"); strings.Contains(body, "amy") {
		t.Errorf("the page still shows\n%s", body)
	}
	s.clean("401")

	// A session whose user does nothing ends after a warning; input keeps it.
	s.enter()
	away := func(minutes int) {
		s.Run(nil, `const real = Date.now;
			window.shift = (window.shift || 0) + args[0] * 60000;
			if (!window.shifted) { window.shifted = true; Date.now = () => real() + window.shift; }`, minutes)
	}
	away(59)
	s.sees("You will be signed out in")
	s.Type("Escape")
	s.until("input keeps it", `!document.querySelector("dialog") && document.querySelector("#who")`)
	away(61)
	s.sees("You were signed out, because you did nothing for a while.")
	if got := s.text(`(await fetch("me")).status`); got != "401" {
		t.Errorf("the session is still there: %s", got)
	}
	s.clean("401")
	s.openID(p)
}

// TestPolicy: the policy prevents forbidden scripts from running, even if a bug inserts them.
func TestPolicy(t *testing.T) {
	s := start(t, "")
	s.enter()
	s.clean("401")
	var ran []string
	// Use a function of the page: the driver's scripts may use eval.
	s.Run(&ran, `window.ran = [];
		await new Promise((done) => setTimeout(() => {
			const script = document.createElement("script");
			try { script.textContent = "window.ran.push('script')"; document.body.append(script); } catch {}
			try { document.body.innerHTML += "<img src=x onerror=\"window.ran.push('handler')\">"; window.ran.push("innerHTML"); } catch {}
			try { document.body.insertAdjacentHTML("beforeend", "<b>x</b>"); window.ran.push("insertAdjacentHTML"); } catch {}
			try { (0, eval)("window.ran.push('eval')"); } catch {}
			try { new Function("window.ran.push('Function')")(); } catch {}
			try { setTimeout("window.ran.push('timeout')"); } catch {}
			const a = document.createElement("a");
			try { a.setAttribute("onclick", "window.ran.push('onclick')"); } catch {}
			document.body.append(a);
			a.click();
			setTimeout(done, 100);
		}));
		return window.ran;`)
	if len(ran) > 0 {
		t.Errorf("these run: %v", ran)
	}
	var refused []string
	s.Run(&refused, `const out = [];
		for (const url of ["http://127.0.0.1:1/", "https://example.com/"]) { try { await fetch(url, {mode: "no-cors"}); } catch (e) { out.push(url); } }
		return out;`)
	if len(refused) != 2 {
		t.Errorf("requests elsewhere: %v are refused", refused)
	}
	if n := len(s.Messages()); n == 0 {
		t.Error("the browser does not report violations: the other tests would not see any")
	}
}

// TestThemesAndScreens: both themes have enough contrast, and the page fits a screen of 360 pixels.
func TestThemesAndScreens(t *testing.T) {
	s := start(t, "", "alpha")
	s.enter()
	var pages []string
	s.json(&pages, `[...document.querySelectorAll("nav a")].map((a) => a.getAttribute("href"))`)
	pages = append(pages, "#/minions/alpha", "#/history/alpha")
	if len(pages) != 16 {
		t.Errorf("pages: %v", pages)
	}
	backs := map[string]string{}
	// Pages whose content is the same in each run, but for times and versions.
	recorded := []string{"#/minions", "#/keys", "#/run", "#/history", "#/access", "#/settings"}
	for _, scheme := range []string{"light", "dark"} {
		s.Scheme(scheme)
		s.until("the theme is "+scheme, `document.documentElement.dataset.theme === args[0]`, scheme)
		for _, width := range []int{0, 360} {
			s.Width(width)
			for _, p := range pages {
				s.page(p)
				s.until("the page is there", `document.querySelector("main h1") && location.hash === args[0]`, p)
				if p == "#/minions" {
					s.until("the list is there", `document.querySelector("tr[data-id=alpha]")`)
				}
				if p == "#/schedules" {
					s.click("#s-new")
				}
				if width > 0 {
					s.fits(scheme + " " + p)
				}
				s.contrast(scheme + " " + p)
				name := strings.NewReplacer("#/", "", "/", "-").Replace(p) + "-" + scheme
				if width > 0 {
					name += "-narrow"
				}
				s.picture(name)
				if width == 0 && slices.Contains(recorded, p) {
					s.looksAs(name)
				}
			}
		}
		s.Width(0)
		backs[scheme] = s.text(`getComputedStyle(document.documentElement).backgroundColor`)
	}
	if backs["light"] == backs["dark"] {
		t.Errorf("the themes have the same background: %v", backs)
	}
	// Each page by the keyboard: its key, and Tab to its first control.
	for key, p := range map[string]string{"o": "overview", "m": "minions", "k": "keys", "j": "jobs", "r": "run", "s": "states",
		"h": "history", "n": "orchestrations", "d": "schedules", "f": "files",
		"e": "events", "a": "access", "u": "audit", ",": "settings"} {
		s.Run(nil, `document.activeElement.blur();`)
		s.Type("g" + key)
		s.until("g "+key+" goes to "+p, `location.hash.split("?")[0] === "#/" + args[0] && document.querySelector("main h1") &&
			document.activeElement.id === "main"`, p)
		s.until("there is a control", `document.querySelector("main a, main input, main button, main select")`)
		s.Type("Tab")
		s.until("Tab reaches the page", `document.activeElement.id !== "main" && document.activeElement.closest("main")`)
	}
	s.page("#/settings")
	s.set("#c-density", "dense")
	s.until("rows are dense", `document.documentElement.dataset.density === "dense"`)
	s.set("#c-times", "utc")
	s.page("#/access")
	s.until("times are UTC", `document.querySelector("#sessions td:nth-child(3)").textContent.includes("UTC")`)
	s.click("#theme")
	s.until("the button changes the theme", `document.documentElement.dataset.theme === "light"`)
	s.Run(nil, `location.reload();`)
	s.until("and the browser keeps it", `document.querySelector("#theme") && document.documentElement.dataset.theme === "light"`)
	s.clean("401")
}

// contrast fails for text that is hard to read: WCAG 2.2 AA requires 4.5 to 1.
func (s *stage) contrast(what string) {
	s.t.Helper()
	var bad []string
	s.Run(&bad, `const rgb = (c) => (c.match(/[\d.]+/g) || []).map(Number);
		const light = ([r, g, b]) => { const f = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
		const back = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > 0) return c; } return [255, 255, 255]; };
		const out = [];
		const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		for (let n = walk.nextNode(); n; n = walk.nextNode()) {
			const e = n.parentElement;
			if (!n.textContent.trim() || !e.checkVisibility() || e.closest(".hidden-text, .skip, noscript, datalist, :disabled")) continue;
			const a = light(rgb(getComputedStyle(e).color)), b = light(back(e));
			const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
			if (ratio < 4.5) out.push(ratio.toFixed(2) + " " + n.textContent.slice(0, 60));
		}
		return out.slice(0, 5);`)
	for _, b := range bad {
		s.t.Errorf("%s: contrast %s", what, b)
	}
}
