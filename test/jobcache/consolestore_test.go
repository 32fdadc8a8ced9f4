package jobcache

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/servertest"
)

// TestConsoleStore: masters that know nothing of each other share what users saved, audit records and runs of states by
// a PostgreSQL server. Nothing fails while it lacks its tables or is unreachable, and a master that lost its disk gets all back.
func TestConsoleStore(t *testing.T) {
	t.Parallel()
	s := servertest.Postgres(t)
	t.Cleanup(s.Remove)
	conf := fmt.Sprintf("auto_accept: True\nconsole_store: pgjsonb\nreturner.pgjsonb.host: %s\nreturner.pgjsonb.port: %d\nreturner.pgjsonb.pass: %s\n", s.Host,
		s.Port, s.Password)
	a := daemontest.NewMaster(t, daemontest.Brine, "a", daemontest.Host(), conf)
	a.Write("srv/salt/site.sls", "same:\n  test.nop\nother:\n  test.succeed_with_changes\n")
	a.Write("master", a.Read("master")+"file_roots: {base: ["+a.Path("srv/salt")+"]}\n")
	b := daemontest.NewMaster(t, daemontest.Brine, "b", daemontest.Host(), conf)
	a.Start()
	for _, name := range []string{"etc/salt/pki/master/master.pem", "etc/salt/pki/master/master.pub"} {
		b.Write(name, a.Read(name))
	}
	b.Start()
	daemontest.NewMinion(t, daemontest.Brine, "m1", []string{a.Host, b.Host}, "").Start()
	shows := func(m *daemontest.Node, about string, good func(string) bool, args ...string) {
		t.Helper()
		eventually.Nil(t, waitLimit, m.Name+": "+about, func() error {
			out, stderr, _ := m.Run(daemontest.Brine, "salt-run", append(args, "--out=json")...)
			if !good(out) {
				return fmt.Errorf("%s%s", out, stderr)
			}
			return nil
		})
	}
	has := func(parts ...string) func(string) bool {
		return func(out string) bool {
			for _, p := range parts {
				if !strings.Contains(out, p) {
					return false
				}
			}
			return true
		}
	}
	lacks := func(part string) func(string) bool {
		return func(out string) bool { return strings.Contains(out, `"saved": [`) && !strings.Contains(out, part) }
	}
	save := func(m *daemontest.Node, name string) {
		t.Helper()
		salted(t, m, "salt-run", "saved.put_public", "target", name, "data={tgt: 'm*'}")
	}

	// Before the tables exist.
	save(a, "early")
	eventually.Nil(t, waitLimit, "the minion answers both", func() error {
		if err := a.PingAll(daemontest.Brine, "m1"); err != nil {
			return err
		}
		return b.PingAll(daemontest.Brine, "m1")
	})
	salted(t, a, "salt", "m1", "state.apply", "site")
	shows(a, "says what is missing", has(`"driver": "console_store: pgjsonb"`, "brine migrate schema console_store"), "fleet.store")
	statements, err := daemontest.Brine.Command(t.Context(), t, "migrate", "schema", "console_store").Output()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time for tables that exist
		s.Exec(t, "salt", "SET ROLE salt;\n"+string(statements))
	}

	// What one master has comes to the other one.
	shows(b, "what was saved at a", has(`"early"`, `"m*"`), "saved.list")
	shows(b, "the audit record of a", has(`"master": "a"`, `"state.apply"`), "audit.list", "fun=state.apply")
	shows(b, "the run at a", has(`"severity": "changed"`, `"other"`), "fleet.minion", "m1")
	out := s.Exec(t, "salt", "SELECT changed, failed, drift FROM console_runs WHERE minion = 'm1';")
	if strings.TrimSpace(out) != "1|0|0" {
		t.Errorf("the table of runs: %q", out)
	}
	shows(b, "the history", has(`"source": "console_store"`, `"outcome": "changed"`, `"site"`), "fleet.runs", "m1")
	shows(b, "the days", has(`"source": "console_store"`, `"changed": 1`), "fleet.history")
	save(b, "late")
	shows(a, "what was saved at b", has(`"late"`), "saved.list")
	_, id, _ := strings.Cut(salted(t, a, "salt-run", "saved.list", "--out=json", "--out-indent=-1"), `"id": "`)
	id, _, _ = strings.Cut(id, `"`)
	salted(t, a, "salt-run", "saved.remove_any", id)
	shows(b, "what was removed at a", lacks(`"early"`), "saved.list")

	// The copies of audit records belong to the chain of their master, and a change of one is found.
	shows(a, "whole audit records, and their copies", has(`"whole": true`, `"lacking": 0`), "audit.verify")
	s.Exec(t, "salt", "UPDATE console_audit SET record = replace(record, 'state.apply', 'state.other') WHERE master_id = 'a' AND fun = 'state.apply';")
	shows(a, "the copy that was changed", has(`"whole": false`, "in the console_store was changed"), "audit.verify")
	shows(b, "that its own are whole", has(`"whole": true`), "audit.verify")
	s.Exec(t, "salt", "UPDATE console_audit SET record = replace(record, 'state.other', 'state.apply') WHERE master_id = 'a' AND fun = 'state.apply';")
	shows(a, "whole audit records again", has(`"whole": true`), "audit.verify")

	// While the server is unreachable, both go on.
	s.Stop()
	save(a, "meanwhile")
	shows(a, "the own records, and why there are no others", has(`"console_store"`, `"no answer"`, `"state.apply"`), "audit.list", "limit=1000")
	shows(a, "that the server is unreachable", has("unreachable since"), "fleet.store")
	shows(b, "its own copy of the history", has(`"source": "master"`, `"problem": "the console_store does not answer`, `"outcome": "changed"`), "fleet.runs", "m1")
	shows(a, "that only the files were checked", has(`"whole": true`, "the console_store cannot be compared"), "audit.verify")
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	shows(b, "what was saved meanwhile", has(`"meanwhile"`), "saved.list")

	// A master whose disk was lost.
	salted(t, b, "salt-run", "fleet.preview", "m*")
	a.Kill()
	if err := os.RemoveAll(a.Path("var/cache/salt/master")); err != nil {
		t.Fatal(err)
	}
	a.Start()
	shows(a, "what was saved before", func(out string) bool { return has(`"meanwhile"`, `"late"`)(out) && lacks(`"early"`)(out) }, "saved.list")
	shows(a, "the last runs", has(`"severity": "changed"`), "fleet.minion", "m1")
	shows(a, "its own records of before", has(`"master": "a"`, `"state.apply"`), "audit.list", "fun=state.apply")
	shows(a, "that its files lack records which the server has", has(`"whole": false`, "in the console_store are not in the files"), "audit.verify")
	shows(a, "the sizes", func(out string) bool {
		return strings.Count(out, `"driver": "console_store: pgjsonb"`) == 3 && strings.Contains(out, `"days": 90.0`)
	},
		"fleet.store")
}
