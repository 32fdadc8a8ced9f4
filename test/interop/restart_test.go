package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestRestartsUnderMinions kills a master while jobs run on minions of both kinds. A restarted
// master does not know the former session keys: the minions must sign in again by themselves, and
// every return must arrive.
func TestRestartsUnderMinions(t *testing.T) {
	stockTree(t)
	host := daemontest.Host()
	master := newMaster(t, brine, "boss", host, "auto_accept: true\ngather_job_timeout: 5\n").Start()
	ids := []string{string(brine), string(stock)}
	for _, id := range ids {
		newMinion(t, kind(id), id, []string{host}, "").Start()
	}
	eventually.Nil(t, stockLimit, "both minions answer", func() error { return master.PingAll(brine, ids...) })
	session := func(id string) string {
		b, err := os.ReadFile(master.Path("var/cache/salt/master/sessions/" + id))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for range 3 {
		out, errs, code := master.Run(brine, "salt", "--async", "--out=json", "*", "test.sleep", "3")
		_, jid, ok := strings.Cut(out, "job ID: ")
		jid = strings.Trim(jid, "\"\n ")
		if code != 0 || !ok {
			t.Fatal(code, out, errs)
		}
		eventually.Nil(t, stockLimit, "both minions run the job", func() error {
			for _, id := range ids {
				if rets, err := master.SaltJSON(brine, id, "saltutil.is_running", "test.sleep"); err != nil || !strings.Contains(fmt.Sprint(rets[id]), jid) {
					return fmt.Errorf("%s runs %v: %v", id, rets, err)
				}
			}
			return nil
		})
		before := map[string]string{}
		for _, id := range ids {
			before[id] = session(id)
		}
		master.Kill()
		master.Start()
		took := eventually.Nil(t, stockLimit, "both returns arrive", func() error {
			out, errs, _ := master.Run(brine, "salt-run", "jobs.lookup_jid", jid, "--out=json")
			var rets map[string]any
			if err := json.Unmarshal([]byte(out), &rets); err != nil || len(rets) != len(ids) {
				return fmt.Errorf("%v of %s: %v %s", rets, jid, err, errs)
			}
			return nil
		})
		t.Logf("both returns were there %.1f s after the restart", took.Seconds())
		took = eventually.Nil(t, stockLimit, "both minions answer", func() error { return master.PingAll(brine, ids...) })
		t.Logf("both minions answered %.1f s later", took.Seconds())
		for _, id := range ids {
			if session(id) == before[id] {
				t.Errorf("%s has the session key of before the restart", id)
			}
		}
	}
}
