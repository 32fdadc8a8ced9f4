package api

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"brine/internal/net/crypt"
	"brine/test/browsertest"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// exchange is a request of the page with its answer.
type exchange struct {
	URL, Sent string
	Status    int
	Got       string
}

// gui is SaltGUI in a browser.
type gui struct {
	t *testing.T
	b *browsertest.Browser
}

// listen records each fetch of the page from now on.
const listen = `
	if (window.exchanges) return;
	window.exchanges = []; window.pending = 0; window.faults = [];
	const real = window.fetch;
	window.addEventListener("error", (e) => window.faults.push(String(e.message)));
	window.addEventListener("unhandledrejection", (e) => window.faults.push(String(e.reason)));
	window.fetch = async (url, o) => {
		window.pending++;
		try {
			const r = await real(url, o);
			window.exchanges.push({url: String(url.url || url), sent: String((o || {}).body || ""), status: r.status, got: (await r.clone().text()).slice(0, 4000)});
			return r;
		} finally { window.pending--; }
	};`

// show opens a page and waits until it has no pending requests and contains the text want.
func (g *gui) show(page, want string) {
	g.t.Helper()
	g.b.Run(nil, `window.exchanges = []; history.pushState({}, "", args[0]); window.dispatchEvent(new PopStateEvent("popstate"));`, page)
	g.settled(page, want)
}

func (g *gui) settled(page, want string) {
	g.t.Helper()
	re := regexp.MustCompile(want)
	_, name, _ := strings.Cut(page, "#")
	var got struct {
		Text      string
		Pending   int
		Exchanges []exchange
		Faults    []string
	}
	eventually.Nil(g.t, time.Minute, page+" shows "+want, func() error {
		g.b.Run(&got, `await new Promise((r) => setTimeout(r, 300)); return {text: document.getElementById("page-" + args[0]).innerText, pending: `+
			`window.pending, exchanges: window.exchanges, faults: window.faults};`, name)
		if got.Pending != 0 || strings.Contains(got.Text, "(loading)") || !re.MatchString(got.Text) {
			return fmt.Errorf("it shows %.3000s\n%d requests wait, %.3000v", got.Text, got.Pending, got.Exchanges)
		}
		return nil
	})
	if len(got.Faults) > 0 {
		g.t.Errorf("%s: faults of its scripts: %q", page, got.Faults)
	}
	for _, x := range got.Exchanges {
		if strings.Contains(x.Sent, `"state.orchestrate_show_sls"`) && x.Status == 500 {
			continue // there are no orchestrations yet; the page says so
		}
		if x.Status != 200 && !strings.HasPrefix(filepath.Base(filepath.Dir(x.URL)), "static") {
			g.t.Errorf("%s: %s %s: %d %s", page, x.URL, x.Sent, x.Status, x.Got)
		}
		if !strings.Contains(x.Sent, "jobs.list_job") && strings.Contains(x.Got, "is not available") || strings.Contains(x.Got, "Exception occurred") ||
			strings.Contains(x.Got, "Traceback") {
			g.t.Errorf("%s: %s: %s", page, x.Sent, x.Got)
		}
	}
}

// command runs a command in SaltGUI's command box.
func (g *gui) command(target, command, want string) {
	g.t.Helper()
	g.b.Run(nil, `
		if (document.getElementById("popup-run-command").style.display != "block") document.getElementById("button-manual-run").dispatchEvent(new MouseEvent("click", {bubbles: true}));
		const set = (id, v) => { const e = document.getElementById(id); e.value = v; e.dispatchEvent(new Event("input")); };
		set("target", args[0]); set("command", args[1]);
		document.getElementById("popup-output").innerText = "";
		document.getElementById("run-command").click();`, target, command)
	re := regexp.MustCompile(want)
	eventually.Nil(g.t, time.Minute, command+" shows "+want, func() error {
		var got struct {
			Text    string
			Pending int
		}
		g.b.Run(&got, `await new Promise((r) => setTimeout(r, 200)); return {text: document.getElementById("popup-output").innerText, pending: `+
			`window.pending};`)
		if got.Pending != 0 || !re.MatchString(got.Text) {
			return fmt.Errorf("it shows %.2000s", got.Text)
		}
		return nil
	})
}

// TestSaltGUI uses SaltGUI in a real browser: a user signs in, opens every page, and runs a
// command. BRINE_SALTGUI is the directory with its index.html.
func TestSaltGUI(t *testing.T) {
	tree := os.Getenv("BRINE_SALTGUI")
	if tree == "" {
		t.Skip("BRINE_SALTGUI does not name the directory saltgui of SaltGUI")
	}
	if _, err := os.Stat(filepath.Join(tree, "index.html")); err != nil {
		t.Fatal(err)
	}
	b := browsertest.Start(t)
	roots := daemontest.ShortDir(t)
	for name, text := range map[string]string{
		"top.sls":           "base: {'*': [web]}\n",
		"web.sls":           "say: {test.succeed_without_changes: []}\n",
		"pillar/top.sls":    "base: {'*': [colour]}\n",
		"pillar/colour.sls": "colour: blue\n",
		"orch/all.sls":      "say: {test.succeed_without_changes: []}\n",
	} {
		p := filepath.Join(roots, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := startWith(t, daemontest.Host(), func(conf string) string {
		conf = regexp.MustCompile(`app: .*`).ReplaceAllString(conf, "app: "+tree+"/index.html")
		conf = regexp.MustCompile(`static: .*`).ReplaceAllString(conf, "static: "+tree+"/static")
		return conf + fmt.Sprintf("file_roots: {base: [%[1]s]}\npillar_roots: {base: [%[1]s/pillar]}\nnodegroups: {both: 'L@alpha,beta'}\n"+
			"saltgui_templates: {ping: {description: Is it there, target: '*', command: test.ping}}\n", roots) +
			"reactor: [{'nothing/*': [/nowhere.sls]}]\n"
	}, "alpha", "beta")
	key, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	s.master.Write("etc/salt/pki/master/minions_pre/gamma", string(key.Public().PEM()))
	g := &gui{t, b}
	b.Open(s.url + "/")
	b.Run(nil, listen)
	g.b.Run(nil, `
		const select = document.querySelector("#page-login select, form select");
		select.add(new Option("sharedsecret", "sharedsecret")); select.value = "sharedsecret";
		document.getElementById("username").value = "admin"; document.getElementById("password").value = "s3cret";
		document.getElementById("login-button").click();`)
	g.settled("login#minions", `(?s)alpha.*accepted.*beta.*2 minions`)
	for _, c := range []struct{ target, command, want string }{
		{"*", "test.echo grüß", `(?s)alpha.*grüß.*beta.*grüß`},
		{"alpha", "test.arg 1 a=b", `(?s)args.*1.*kwargs.*a.*b`},
		{"alpha", "nosuch.function", `'nosuch.function' is not available`},
		{"", "runners.manage.up", `(?s)alpha.*beta`},
		{"alpha", "schedule.add nightly function=test.ping seconds=86400", `Added job: nightly`},
		{"alpha", "state.apply", `(?s)say.*(?i)succe`},
		{"gamma", "wheel.key.accept match=gamma", `gamma`},
	} {
		g.command(c.target, c.command, c.want)
	}
	if a := s.do("GET", "/keys", "", "X-Auth-Token", s.login("admin")); !strings.Contains(a.body,
		`"minions": ["alpha", "beta", "gamma"], "minions_pre": []`) {
		t.Errorf("keys: %s", a.body)
	}
	// This minion does not exist; every page would wait for it.
	if err := os.Remove(s.master.Path("etc/salt/pki/master/minions/gamma")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct{ page, want string }{
		{"/#minions", `(?s)alpha.*accepted.*3007`},
		{"/#keys", `(?s)alpha.*accepted.*beta.*accepted.*(:[0-9a-f]{2}){31}`},
		{"/#grains", `(?s)alpha.*accepted.*beta`},
		{"/?minionid=alpha#grains-minion", `osfullname`},
		{"/#pillars", `(?s)alpha.*beta`},
		{"/?minionid=alpha#pillars-minion", `(?s)colour.*\*+`},
		{"/#mine", `(?s)alpha.*beta`},
		{"/?minionid=alpha#mine-minion", `No functions`},
		{"/#beacons", `(?s)alpha.*beta`},
		{"/?minionid=alpha#beacons-minion", `(?s)alpha.*No beacons`},
		{"/#schedules", `(?s)alpha.*1 schedule.*beta`},
		{"/?minionid=alpha#schedules-minion", `(?s)alpha.*nightly.*test\.ping`},
		{"/#nodegroups", `(?s)both.*alpha.*beta`},
		{"/#jobs", `(?s)test\.echo`},
		{"/#highstate", `(?s)alpha.*state\.apply`},
		{"/#templates", `Is it there`},
		{"/#reactors", `nothing/\*`},
		{"/#orchestrations", `(?i)orchestrations`},
		{"/#options", `(?s)admin`},
		{"/#issues", `(?i)issues`},
		{"/#quickview", `Quick View`},
		{"/#events", `(?i)events`},
	} {
		g.show(p.page, p.want)
	}
	// The page of events shows events while it is open.
	g.b.Run(nil, `[...document.querySelectorAll("#page-events .small-button")].find((e) => e.innerText.includes("\u2BC8")).click();`)
	eventually.Nil(t, time.Minute, "an event is on the page", func() error {
		s.do("POST", "/hook/seen", "")
		var text string
		g.b.Run(&text, `return document.getElementById("page-events").innerText;`)
		if !strings.Contains(text, "salt/netapi/hook/seen") {
			return fmt.Errorf("it shows %.2000s", text)
		}
		return nil
	})
	g.b.Run(nil, `history.pushState({}, "", "/#logout"); window.dispatchEvent(new PopStateEvent("popstate"));`)
	eventually.Nil(t, time.Minute, "the session is over", func() error {
		for _, c := range b.Cookies() {
			if a := s.do("GET", "/keys", "", "Cookie", "session_id="+c.Value); a.status != 401 {
				return fmt.Errorf("status %d", a.status)
			}
		}
		return nil
	})
}
