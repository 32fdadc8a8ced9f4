package api

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"brine/test/daemontest"
	"brine/test/tools"
)

// TestCurl: the configuration and the curl commands in docs/rest-api.md work as documented.
func TestCurl(t *testing.T) {
	tools.Need(t, "curl", "curl")
	page, err := os.ReadFile("../../docs/rest-api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(page), "\n    rest_cherrypy:\n")
	block, rest, ok2 := strings.Cut(block, "\n\n")
	lines := regexp.MustCompile(`(?m)^    (curl .*)$`).FindAllStringSubmatch(rest, -1)
	if !ok || !ok2 || len(lines) < 8 {
		t.Fatalf("docs/rest-api.md has no configuration, or %d lines with curl", len(lines))
	}
	host := daemontest.Host()
	cert, key := certificate(t, host)
	hash, err := bcrypt.GenerateFromPassword([]byte("s3cret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	users := filepath.Join(daemontest.ShortDir(t), "users")
	if err := os.WriteFile(users, []byte("alice:"+string(hash)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	conf := regexp.MustCompile(`(?m)^    `).ReplaceAllString("    rest_cherrypy:\n"+block, "") + "\n"
	conf = strings.NewReplacer("port: 8000", fmt.Sprintf("port: %d\n  host: %s", port, host), "/etc/salt/api.crt", cert, "/etc/salt/api.key", key,
		"/etc/salt/users", users).Replace(conf)
	s := startWith(t, host, func(string) string { return "auto_accept: true\n" + conf }, "alpha")
	address, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{ // by a part of the line
		"/login":       `"user": "alice", "eauth": "file", "perms": \[".\*", "@jobs", "@runner", "@wheel"\]`,
		"test.ping":    `^{"return": \[{"alpha": true}\]}$`,
		"manage.up":    `^{"return": \[\["alpha"\]\]}$`,
		"8000/minions": `"minions": \["alpha"\]}\], "_links": {"jobs": \[{"href": "/jobs/\d{20}"}\]}}$`,
		"/jobs":        `(?s)- hello\s+Function: test.echo`,
		"/hook":        `^{"success": true}$`,
		"/run":         `"return": {"minions": \["alpha"\]`,
		"/v1/minions":  `^{"accepted": 1, "matched": 0, `,
		"/v1/keys":     `^{"keys": \[{"id": "web1", "state": null, "done": false, "reason": "there is no key of this minion"}\], "done": 0}$`,
		"/logout":      `Your token has been cleared`,
	}
	isLogout := func(l []string) bool { return strings.Contains(l[1], "/logout") }
	if i := slices.IndexFunc(lines, isLogout); i >= 0 { // the lines after it need the session as well
		lines = append(slices.Delete(slices.Clone(lines), i, i+1), lines[i])
	}
	session := ""
	for _, l := range lines {
		line := strings.NewReplacer("m1:8000", address.Host, "password=...", "password=s3cret", "X-Auth-Token: ...", "X-Auth-Token: "+session).Replace(l[1])
		out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
		text := strings.TrimSpace(string(out))
		if err != nil {
			t.Fatalf("%s: %v %s", line, err, out)
		}
		if m := regexp.MustCompile(`"token": "([0-9a-f]{40})"`).FindStringSubmatch(text); m != nil {
			session = m[1]
		}
		found := false
		for part, re := range want {
			if strings.Contains(l[1], part) {
				found = true
				if !regexp.MustCompile(re).MatchString(text) {
					t.Errorf("%s: %s", line, text)
				}
			}
		}
		if !found {
			t.Errorf("%s is missing in the table", line)
		}
	}
}
