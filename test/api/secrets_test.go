package api

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
)

// TestNoSecretIsWritten sends secrets in every way that users do, correct and wrong ones, to
// daemons with the most verbose logs. Afterwards no log, event, job, record, error or file contains
// them, except the files that are meant to.
func TestNoSecretIsWritten(t *testing.T) {
	const (
		right   = "r1ght-S3cret-of-all"
		wrong   = "wr0ng-S3cret-of-eve"
		bindpw  = "b1nd-S3cret-of-ldap"
		dbpw    = "d4tabase-S3cret-of-db"
		keypass = "p4ss-S3cret-of-keys"
		inner   = "p1llar-S3cret-of-alpha"
	)
	pillar := daemontest.ShortDir(t)
	for name, text := range map[string]string{"top.sls": "base: {alpha: [hidden]}\n", "hidden.sls": "hidden: " + inner + "\n"} {
		if err := os.WriteFile(filepath.Join(pillar, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := startWith(t, daemontest.Host(), func(conf string) string {
		return strings.Replace(conf, "sharedsecret: s3cret", "sharedsecret: "+right, 1) +
			"log_level: all\nlog_level_logfile: all\npillar_roots: {base: [" + pillar + "]}\nauth.ldap.bindpw: " + bindpw + "\nmysql.pass: " + dbpw +
			"\nsigning_key_pass: " + keypass + "\n"
	}, "alpha")
	var secrets, told []string
	say := func(a answer) answer {
		told = append(told, a.body)
		return a
	}
	login := func(password string) answer {
		return s.do("POST", "/login", `{"username":"admin","password":"`+password+`","eauth":"sharedsecret"}`, "Content-Type", asJSON)
	}
	a := login(right)
	session := a.header.Get("X-Auth-Token")
	say(login(wrong))
	var raw []map[string]any
	if a := s.do("POST", "/token", "username=admin&password="+right+"&eauth=sharedsecret", "Content-Type",
		"application/x-www-form-urlencoded"); json.Unmarshal([]byte(a.body), &raw) != nil || len(raw) != 1 {
		t.Fatalf("/token: %s", a.body)
	}
	token := raw[0]["token"].(string)
	secrets = append(secrets, right, wrong, bindpw, dbpw, keypass, inner, session, token)

	lines := s.stream("/events?token=" + session)
	by := func(creds string) []string {
		return []string{
			`{"client":"local","tgt":"alpha","fun":"test.ping",` + creds + `}`,
			`{"client":"local_async","tgt":"alpha","fun":["test.ping","test.echo"],"arg":[[],["x"]],` + creds + `}`,
			`{"client":"local_batch","tgt":"alpha","fun":"test.ping",` + creds + `}`,
			`{"client":"local_subset","tgt":"alpha","fun":"test.ping",` + creds + `}`,
			`{"client":"runner","fun":"test.arg","arg":["x"],` + creds + `}`,
			`{"client":"runner","fun":"no.such",` + creds + `}`,
			`{"client":"runner_async","fun":"test.arg",` + creds + `}`,
			`{"client":"wheel","fun":"key.list_all",` + creds + `}`,
			`{"client":"wheel","fun":"no.such",` + creds + `}`,
			`{"client":"wheel_async","fun":"key.list_all",` + creds + `}`,
			`{"client":"local","tgt":7,"fun":{},` + creds + `}`,
			`{"client":"none","fun":"x",` + creds + `}`,
		}
	}
	for _, creds := range []string{`"eauth":"sharedsecret","username":"admin","password":"` + right + `"`, `"token":"` + token + `"`} {
		for _, chunk := range by(creds) {
			say(s.do("POST", "/run", chunk, "Content-Type", asJSON))
			say(s.do("POST", "/", chunk, "Content-Type", asJSON, "X-Auth-Token", session))
		}
	}
	say(s.do("POST", "/run", by(`"eauth":"sharedsecret","username":"admin","password":"` + wrong + `"`)[0], "Content-Type", asJSON))
	say(s.do("POST", "/run", `{"client":"runner","eauth":"sharedsecret","username":"admin","password":"`+right+`","fun`, "Content-Type", asJSON)) // cut off
	say(s.do("POST", "/hook/it", `{"a":1}`, "Content-Type", asJSON, "X-Auth-Token", session, "Cookie", "session_id="+session))
	say(s.do("GET", "/events?token="+strings.Repeat("0", 40), ""))
	say(s.do("GET", "/minions/alpha", "", "X-Auth-Token", session))
	for _, fun := range []string{"config.values"} {
		say(s.post(session, `{"client":"wheel","fun":"`+fun+`"}`))
	}
	for _, args := range [][]string{
		{"-a", "sharedsecret", "--username=admin", "--password=" + right, "alpha", "test.ping"},
		{"-a", "sharedsecret", "--username=admin", "--password=" + wrong, "alpha", "test.ping"},
		{"alpha", "saltutil.refresh_pillar"},
		{"alpha", "pillar.obfuscate"},
		{"alpha", "state.sls", "none"},
	} {
		out, errs, _ := s.master.Run(daemontest.Brine, "salt", append([]string{"--log-level=all"}, args...)...)
		told = append(told, out, errs)
	}
	for _, args := range [][]string{{"-a", "sharedsecret", "--username=admin", "--password=" + right, "test.arg"}, {"audit.list"}, {"jobs.list_jobs"}} {
		out, errs, _ := s.master.Run(daemontest.Brine, "salt-run", append([]string{"--log-level=all"}, args...)...)
		told = append(told, out, errs)
	}
	say(s.do("POST", "/logout", "", "X-Auth-Token", session))

	check := func(where, text string) {
		t.Helper()
		for _, secret := range secrets {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s holds %s: …%s…", where, secret, text[max(0, i-200):min(len(text), i+100)])
			}
		}
	}
	for _, text := range told {
		check("an answer", text)
	}
	// When the last job is on the bus, all earlier events are, too.
	heard := ""
	for !strings.Contains(heard, "salt/netapi/hook/it") {
		heard += next(t, lines) + "\n"
	}
	for more := true; more; {
		select {
		case l, ok := <-lines:
			heard, more = heard+l+"\n", ok
		case <-time.After(2 * time.Second):
			more = false
		}
	}
	check("an event", heard)
	check("the log of the API", s.api.Log())
	check("the log of the master", s.master.Log())
	for _, m := range s.minions {
		check("the log of the minion", m.Log())
	}
	files := 0
	for _, n := range append(s.minions, s.master) {
		err := filepath.WalkDir(n.Dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			rel, _ := filepath.Rel(n.Dir, path)
			text := string(b)
			switch {
			case rel == "master":
				return err // the configuration
			case strings.Contains(rel, "cache/salt/master/tokens/"), strings.Contains(rel, "brine/api/"):
				text = strings.ReplaceAll(text, token, "") // the names of token files contain the token, a session contains its token
				rel = filepath.Dir(rel)
			case strings.HasSuffix(rel, "/minions/alpha/data.p"):
				text = strings.ReplaceAll(text, inner, "") // data of minions, readable only by its owner
				if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
					t.Errorf("%s: %v", rel, st.Mode())
				}
			}
			files++
			check(rel, rel+text)
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if files < 15 || len(heard) < 2000 {
		t.Errorf("only %d files and %d bytes of events were looked at", files, len(heard))
	}
}
