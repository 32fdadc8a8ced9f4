package cli

import (
	"os"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestExternalAuthentication runs salt and salt-run as users of an external system, by password and
// by token; the recordings are Salt's.
func TestExternalAuthentication(t *testing.T) {
	host := daemontest.Host()
	tokenFile := t.TempDir() + "/token"
	master := daemontest.NewMaster(t, daemontest.Brine, "master", host, `auto_accept: true
timeout: 10
gather_job_timeout: 5
token_file: `+tokenFile+`
sharedsecret: s3cret
external_auth:
  sharedsecret:
    limited:
      - 'alpha*': [test.ping]
      - '@runner': [test.arg]
`).Start()
	daemontest.NewMinion(t, daemontest.Brine, "alpha", []string{host}, "").Start()
	eventually.Nil(t, time.Minute, "the minion answers", func() error { return master.PingAll(daemontest.Brine, "alpha") })
	for _, name := range []string{"eauth_ok", "eauth_denied_fun"} {
		replay(t, master, "salt", name, strings.NewReplacer())
	}
	user := []string{"-a", "sharedsecret", "--username=limited", "--password=s3cret"}
	run := func(program string, args ...string) string {
		stdout, stderr, _ := master.Run(daemontest.Brine, program, args...)
		return stdout + stderr
	}
	if out := run("salt", append(user, "-T", "alpha", "test.ping")...); out != "alpha:\n    True\n" {
		t.Errorf("-T: %q", out)
	}
	if fi, err := os.Stat(tokenFile); err != nil || fi.Mode().Perm() != 0o600 || fi.Size() != 64 {
		t.Fatalf("the token: %v, %v", fi, err)
	}
	if out := run("salt", "-a", "sharedsecret", "alpha", "test.ping"); out != "alpha:\n    True\n" {
		t.Errorf("by the token: %q", out)
	}
	if out := run("salt", "-a", "sharedsecret", "alpha", "test.version"); out != "Authorization error occurred.\n" {
		t.Errorf("by the token, without the right: %q", out)
	}
	if out := run("salt-run", append(user, "test.arg", "--out=json", "a")...); !strings.Contains(out, `"a"`) {
		t.Errorf("salt-run: %q", out)
	}
	if out := run("salt-run", append(user, "manage.up")...); !strings.Contains(out, `Authentication failure of type "eauth" occurred for user limited.`) {
		t.Errorf("salt-run without the right: %q", out)
	}
	if out := run("salt", "-a", "sharedsecret", "--username=limited", "--password=no", "alpha", "test.ping"); !strings.Contains(out,
		"Authentication error occurred.") {
		t.Errorf("a wrong password: %q", out)
	}
}
