package cluster

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestChangeVoters: commands add and remove voters while the cluster runs: a master and a witness
// by two operators at once, the holder of the lease, a witness, and one while another is down. The
// configuration keeps the first list, even at a restart of all masters, which they log. A disk from
// before the changes has no effect. The lease continues with growing tokens.
func TestChangeVoters(t *testing.T) {
	t.Parallel()
	a := newApart(t, 4, "auto_accept: true\n")
	var first []string
	for _, m := range a.masters[:3] {
		first = append(first, m.Name)
	}
	list := fmt.Sprintf("cluster_voters: [%s]\n", strings.Join(first, ", "))
	for _, m := range a.masters {
		m.Write("master", m.Read("master")+list)
	}
	w := daemontest.NewMaster(t, brine, "witness", daemontest.Host(), "")
	w.Program, w.Level = "witness", ""
	w.Write("witness", fmt.Sprintf("id: %s\ninterface: %[1]s\ncluster_id: test\ncluster_secret: %s\ncluster_pool_port: %d\ncachedir: %s\nlog_level: debug\n%s",
		w.Host, secret, poolPort, w.Path("state"), list))
	w.Launch()
	a.start()
	four := a.masters[3]
	_, token := holder(t, "at first", 0, a.masters...)
	up := slices.Clone(a.masters)
	all := func(what string, voters ...string) {
		t.Helper()
		slices.Sort(voters)
		for _, m := range up {
			eventually.Nil(t, soon, m.Name+" knows the voters "+what, func() error {
				by, err := votersAt(m)
				for id, r := range by {
					if err == nil && r.Votes != "yes" {
						err = fmt.Errorf("%s: %+v", id, r)
					}
				}
				if names := slices.Sorted(maps.Keys(by)); err == nil && !slices.Equal(names, voters) {
					err = fmt.Errorf("%q, not %q", names, voters)
				}
				return err
			})
		}
		_, token = holder(t, what, token-1, up...)
	}
	do := func(m *node, want int, words string, args ...string) {
		t.Helper()
		out, errs, code := m.Run(brine, "cluster", append([]string{"voters"}, args...)...)
		if (code == 0) != (want == 0) || !strings.Contains(out+errs, words) {
			t.Errorf("%q: exit code %d, and it does not say %q: %s%s", args, code, words, out, errs)
		}
	}
	all("at first", first...)
	file := func(m *node) string { return m.Path("var/cache/salt/master/brine/masters/" + m.Name + "/voter.db") }
	three := a.masters[2]
	three.Kill()
	old, err := os.ReadFile(file(three))
	must(t, err)
	three.Start()

	var wg sync.WaitGroup
	wg.Go(func() { do(a.masters[0], 0, four.Name, "add", four.Name) })
	wg.Go(func() { do(four, 0, w.Host, "add", w.Host) })
	wg.Wait()
	all("with two more", append([]string{four.Name, w.Host}, first...)...)
	do(a.masters[1], 1, "is a voter already", "add", four.Name)
	do(a.masters[1], 1, "is not a voter", "remove", "192.0.2.1")
	do(a.masters[1], 1, "it has not answered", "add", daemontest.Host())

	out, _ := holder(t, "before it is removed", token-1, up...)
	do(four, 0, "note", "remove", out.Name)
	rest := []string{w.Host}
	for _, m := range but(a.masters, out) {
		rest = append(rest, m.Name)
	}
	out.Logged("this voter was removed from the voters by a command")
	all("without the former holder", rest...)

	for _, m := range append(slices.Clone(a.masters), w) {
		m.Kill()
	}
	w.Launch()
	for _, m := range a.masters {
		m.Launch()
	}
	for _, m := range a.masters {
		m.Await()
	}
	all("after a restart of all", rest...)
	for _, m := range append(slices.Clone(a.masters), w) {
		warned := ""
		for line := range strings.Lines(m.Log()) {
			if strings.Contains(line, "cluster_voters in the configuration does not count") {
				warned = line
			}
		}
		for _, id := range slices.Concat(first, rest) {
			if !strings.Contains(warned, id) {
				t.Errorf("%s does not name %s of both lists: %s", m.Name, id, warned)
			}
		}
	}

	// One of the four is down, and another one is removed; removing one more would leave no
	// majority.
	voting := but(a.masters, out)
	down := voting[0]
	down.Kill()
	up = but(a.masters, down)
	holder(t, "while one is down", token-1, up...)
	do(out, 0, "", "remove", voting[1].Name)
	// The leader notices a dead voter after a while; until then it reports that two would be left.
	eventually.Nil(t, soon, "the next would leave no majority", func() error {
		stdout, errs, code := out.Run(brine, "cluster", "voters", "remove", voting[2].Name)
		if code == 0 || !strings.Contains(stdout+errs, "no majority") {
			return fmt.Errorf("exit code %d: %s%s", code, stdout, errs)
		}
		return nil
	})
	down.Start()
	up = slices.Clone(a.masters)
	rest = []string{down.Name, voting[2].Name, w.Host}
	all("when it is back", rest...)

	do(out, 1, "2 voters would be left", "remove", w.Host)
	do(out, 0, "", "remove", w.Host, "--force")
	w.Logged("this voter was removed from the voters by a command")
	all("without the witness", down.Name, voting[2].Name)
	do(out, 0, "", "add", w.Host)
	all("with the witness again", rest...)

	if !slices.Contains(rest, three.Name) {
		do(out, 0, "", "add", three.Name)
		rest = append(rest, three.Name)
	}
	all("with the third", rest...)
	three.Kill()
	must(t, os.WriteFile(file(three), old, 0o600))
	three.Start()
	all("with a disk from before the changes", rest...)
}
