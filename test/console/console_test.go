// Package console tests the web console in a real browser, Chromium, with real masters, minions and
// salt-api.
//
// BRINE_PICTURES names a directory for pictures of the pages.
package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"brine/test/browsertest"
	"brine/test/daemontest"
	"brine/test/eventually"
)

func TestMain(m *testing.M) { daemontest.Main(m) }

// port is the port of salt-api, on the address of its master.
const port = 28200

const conf = `timeout: 10
gather_job_timeout: 5
sharedsecret: s3cret
netapi_enable_clients: [local, local_async, local_batch, runner, runner_async, wheel, wheel_async]
permission_roles:
  operator:
    description: looks after alpha
    permissions: ['alpha': ['test.*'], '@fleet']
  unused:
    permissions: ['.*', '@wheel']
external_auth:
  sharedsecret:
    admin: ['.*', '@runner', '@wheel']
    limited:
      - 'alpha':
          - test.*
    reader: ['@fleet']
    viewer: ['@fleet', {'@runner': ['saved.list']}]
    roled: ['@role:operator', 'test.arg']
    operator: ['test.version']
    boss: ['.*', '@fleet']
  file:
    ^filename: %s
    ^filetype: htpasswd
    amy: ['@runner']
rest_cherrypy:
  host: %s
  port: %d
  disable_ssl: true
`

// stage is a master with its salt-api, and a page in a browser.
type stage struct {
	*browsertest.Browser
	t      *testing.T
	master *daemontest.Node
	api    *daemontest.Node
	url    string
}

// configure returns the configuration of a master for the console.
func configure(t *testing.T, host string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("pa ss"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	users := filepath.Join(daemontest.ShortDir(t), "users")
	if err := os.WriteFile(users, []byte("amy:"+string(hash)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(conf, users, host, port)
}

// call sends a request of the page with a body of JSON and the session's token against forgery, and
// returns its status.
func (s *stage) call(method, path string, times int) (status int) {
	s.t.Helper()
	s.Run(&status, `const csrf = (await (await fetch("me")).json()).csrf;
		let r;
		const o = {method: args[0], headers: {"Content-Type": "application/json", "X-Csrf-Token": csrf}, body: "{}"};
		for (let i = 0; i < args[2]; i++) r = await fetch(args[1], o);
		return r.status;`, method, path, times)
	return status
}

// start runs a master with a salt-api and minions, and opens the console.
func start(t *testing.T, more string, minions ...string) *stage {
	t.Helper()
	return startWith(t, "", more, minions...)
}

// startWith is start with further entries of external_auth. HOST stands for the master's address.
func startWith(t *testing.T, external, more string, minions ...string) *stage {
	t.Helper()
	b := browsertest.Start(t)
	host := daemontest.Host()
	const section = "external_auth:\n"
	text := strings.Replace(configure(t, host), section, section+strings.ReplaceAll(external, "HOST", host), 1) + "auto_accept: true\n" + more
	m := daemontest.NewMaster(t, daemontest.Brine, "m1", host, text).Start()
	s := &stage{b, t, m, daemontest.NewAPI(m).Launch(), fmt.Sprintf("http://%s:%d", host, port)}
	s.await()
	for _, id := range minions {
		daemontest.NewMinion(t, daemontest.Brine, id, []string{host}, "").Start()
	}
	if len(minions) > 0 {
		eventually.Nil(t, time.Minute, "the minions answer", func() error { return m.PingAll(daemontest.Brine, minions...) })
	}
	s.Open(s.url + "/console")
	return s
}

// await waits until salt-api answers.
func (s *stage) await() {
	s.t.Helper()
	eventually.Nil(s.t, time.Minute, "the API answers", func() error {
		resp, err := http.Get(s.url + "/health")
		if err == nil {
			resp.Body.Close()
		}
		return err
	})
}

// until waits until a JavaScript expression in the page is true. Its arguments are args[0] and so
// on.
func (s *stage) until(what, condition string, args ...any) {
	s.t.Helper()
	var ok bool
	s.Run(&ok, `for (const end = Date.now() + 60000; Date.now() < end; await new Promise((r) => setTimeout(r, 20))) {
		try { if (`+condition+`) return true; } catch {}
	}
	return false;`, args...)
	if !ok {
		s.t.Fatalf("%s: not within a minute; the page at %s shows\n%.4000s\n%v", what, s.text("location.href"), s.text("document.body.innerText"), s.Messages())
	}
}

// text returns the value of a JavaScript expression.
func (s *stage) text(expression string, args ...any) (v string) {
	s.t.Helper()
	s.Run(&v, "return String("+expression+");", args...)
	return v
}

// sees waits until the page contains a text, regardless of white space.
func (s *stage) sees(text string) {
	s.t.Helper()
	s.until("the page shows "+text, `document.body.innerText.replace(/\s+/g, " ").includes(args[0])`, text)
}

// click waits for the element that a selector matches, and clicks it.
func (s *stage) click(selector string) {
	s.t.Helper()
	s.until("there is "+selector, `document.querySelector(args[0])`, selector)
	s.Run(nil, `document.querySelector(args[0]).click();`, selector)
}

// set sets the value of a field, as typing does.
func (s *stage) set(selector, text string) {
	s.t.Helper()
	s.until("there is "+selector, `document.querySelector(args[0])`, selector)
	s.Run(nil, `const e = document.querySelector(args[0]); e.value = args[1];
		e.dispatchEvent(new Event("input", {bubbles: true})); e.dispatchEvent(new Event("change", {bubbles: true}));`, selector, text)
}

// signIn signs a user in with the form.
func (s *stage) signIn(user, password, system string) {
	s.t.Helper()
	s.set("#username", user)
	s.set("#password", password)
	s.set("#eauth", system)
	s.click("#sign-in")
}

// enter signs the administrator in, and waits for the first page.
func (s *stage) enter() {
	s.t.Helper()
	s.signIn("admin", "s3cret", "sharedsecret")
	s.until("the stream is open", `document.getElementById("connection").textContent.includes("live")`)
}

// page goes to a page of the console.
func (s *stage) page(hash string) {
	s.t.Helper()
	s.Run(nil, `location.hash = args[0];`, hash)
}

// clean fails if the browser has logged errors, such as a violation of the policy. allowed are
// parts of the messages of expected errors, such as refused requests.
func (s *stage) clean(allowed ...string) {
	s.t.Helper()
next:
	for _, m := range s.Messages() {
		for _, a := range allowed {
			if strings.Contains(m.Text, a) {
				continue next
			}
		}
		s.t.Errorf("the browser: %s %s: %s", m.Level, m.Source, m.Text)
	}
}

// picture saves a screenshot of the page if BRINE_PICTURES is set.
func (s *stage) picture(name string) {
	s.t.Helper()
	dir := os.Getenv("BRINE_PICTURES")
	if dir == "" {
		return
	}
	s.Run(nil, `for (const a of document.getAnimations()) a.finish();`)
	if err := os.WriteFile(filepath.Join(dir, name+".png"), s.Picture(), 0o644); err != nil {
		s.t.Error(err)
	}
}

// fits fails if a page is wider than the screen.
func (s *stage) fits(what string) {
	s.t.Helper()
	var d struct {
		Wide, Screen int
		Which        string
	}
	s.Run(&d, `const w = document.documentElement.clientWidth;
		const inside = (e) => { for (let p = e.parentElement; p; p = p.parentElement) if (getComputedStyle(p).overflowX !== "visible") return true; return false; };
		const bad = [...document.querySelectorAll("body *")].find((e) => e.getBoundingClientRect().right > w + 1 && !inside(e) && !e.closest(".hidden-text, .skip"));
		return {wide: document.documentElement.scrollWidth, screen: w, which: bad ? bad.outerHTML.slice(0, 300) : ""};`)
	if d.Wide > d.Screen || d.Which != "" {
		s.t.Errorf("%s: %d pixels on a screen of %d: %s", what, d.Wide, d.Screen, d.Which)
	}
}

func (s *stage) json(to any, expression string, args ...any) {
	s.t.Helper()
	var text string
	s.Run(&text, "return JSON.stringify("+expression+");", args...)
	if err := json.Unmarshal([]byte(text), to); err != nil {
		s.t.Fatalf("%v: %s", err, text)
	}
}

// TestManyRequests: a page whose session has used up its requests, by a second page or a script, waits for its data. It shows no error.
func TestManyRequests(t *testing.T) {
	s := start(t, "", "alpha")
	s.enter()
	var refused int
	s.Run(&refused, `const codes = await Promise.all([...Array(80)].map(async () => (await fetch("look/minions?limit=1")).status));
		return codes.filter((c) => c === 429).length;`)
	if refused == 0 {
		t.Error("no request was refused")
	}
	s.page("#/minions")
	s.until("the list is there", `document.querySelector("tr[data-id=alpha]")`)
	s.page("#/minions/alpha")
	s.sees("test.ping")
	if got := s.text(`document.body.innerText`); strings.Contains(got, "too often") {
		t.Error(got)
	}
	// A page alone is never refused, however fast its user is.
	s.Run(nil, `await new Promise((r) => setTimeout(r, 4000));`)
	s.Messages()
	for range 15 {
		for _, p := range []string{"#/minions", "#/jobs", "#/run", "#/schedules"} {
			s.page(p)
		}
	}
	s.until("the page of schedules is there", `document.querySelector("#s-new")`)
	// Nor when it is loaded again.
	for range 3 {
		s.Run(nil, `location.reload();`)
		s.until("the page of schedules is there again", `document.querySelector("#s-new")`)
		for _, p := range []string{"#/minions", "#/jobs", "#/run", "#/schedules"} {
			s.page(p)
		}
		s.until("the page of schedules is back", `document.querySelector("#s-new")`)
	}
	s.clean()
}
