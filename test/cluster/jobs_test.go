package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"brine/test/eventually"
)

// TestJobsWhileMastersDie publishes jobs at the masters in turn, and kills each right after it has
// accepted a job. Every minion runs every job once, and all masters have all returns.
// BRINE_CLUSTER_JOBS is the number of jobs.
func TestJobsWhileMastersDie(t *testing.T) {
	t.Parallel()
	jobs := 24
	if n, err := strconv.Atoi(os.Getenv("BRINE_CLUSTER_JOBS")); err == nil {
		jobs = n
	}
	haproxyProgram(t)
	f := newFleet(t, "auto_accept: true\n", brine, brine, brine).start()
	host := f.balance()
	ids := []string{"m0", "m1", "m2"}
	for _, id := range ids {
		f.minion(brine, id, host, "")
	}
	for _, m := range f.masters {
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, ids...) })
	}
	ledger := filepath.Join(f.shared, "ledger")
	if err := os.Mkdir(ledger, 0o700); err != nil {
		t.Fatal(err)
	}
	// A killed master stays down during the jobs of the next turn.
	turn := max(jobs/8, 3)
	jids := make([]string, jobs)
	var dead *node
	for i := range jobs {
		at := f.masters[i%3]
		if at == dead {
			at = f.masters[(i+1)%3]
		}
		jids[i] = f.publish(at, "*", "cmd.run", fmt.Sprintf("echo %d >> %s/{{grains.id}}", i, ledger), "python_shell=True", "template=jinja")
		if i%turn == turn-1 {
			if dead != nil {
				dead.Start()
			}
			dead = at
			dead.Kill()
		}
	}
	if dead != nil {
		dead.Start()
	}
	eventually.Nil(t, soon, "all returns are in the shared directory", func() error {
		for i, jid := range jids {
			for _, id := range ids {
				if !f.returned(jid, id) {
					return fmt.Errorf("job %d (%s) of %s", i, jid, id)
				}
			}
		}
		return nil
	})
	for _, id := range ids {
		b, err := os.ReadFile(filepath.Join(ledger, id))
		if err != nil {
			t.Fatal(err)
		}
		times := map[string]int{}
		for _, n := range strings.Fields(string(b)) {
			times[n]++
		}
		for i := range jobs {
			if times[strconv.Itoa(i)] != 1 {
				t.Errorf("%s ran job %d %d times", id, i, times[strconv.Itoa(i)])
			}
		}
	}
	for _, m := range f.masters {
		for _, jid := range []string{jids[0], jids[jobs/2], jids[jobs-1]} {
			out, _, _ := m.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
			for _, id := range ids {
				if !strings.Contains(out, `"`+id+`"`) {
					t.Errorf("%s does not show the return of %s for %s: %s", m.Name, id, jid, out)
				}
			}
		}
	}
}
