package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

type diagnosis struct {
	Masters, Checked []string
	Findings         []struct{ Check, Master, Finding, Fix string }
}

// diagnose runs brine ha doctor on a master.
func diagnose(m *node, args ...string) (d diagnosis, code int, err error) {
	out, errs, code := m.Run(brine, "ha", append([]string{"doctor", "--out=json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		return d, code, fmt.Errorf("%w: %s%s", err, out, errs)
	}
	for _, f := range d.Findings {
		if f.Fix == "" || !slices.Contains(d.Checked, f.Check) {
			err = fmt.Errorf("no fix, or no check: %+v", f)
		}
	}
	if code != min(len(d.Findings), 1) {
		err = fmt.Errorf("exit code %d with %+v", code, d.Findings)
	}
	return d, code, err
}

// finds waits until the doctor of a master reports a finding.
func finds(t *testing.T, m *node, check, master, text string) {
	t.Helper()
	eventually.Nil(t, soon, fmt.Sprintf("the doctor of %s finds %s of %q: %s", m.Name, check, master, text), func() error {
		d, _, err := diagnose(m)
		if err != nil {
			return err
		}
		for _, f := range d.Findings {
			if f.Check == check && f.Master == master && strings.Contains(f.Finding, text) {
				return nil
			}
		}
		return fmt.Errorf("%+v", d.Findings)
	})
}

func (a *apart) healthy(at *node) {
	a.t.Helper()
	eventually.Nil(a.t, soon, "nothing is wrong", func() error {
		d, _, err := diagnose(at)
		if err == nil && (len(d.Findings) > 0 || len(d.Masters) != len(a.masters)) {
			err = fmt.Errorf("%+v", d)
		}
		return err
	})
}

// TestDoctorOfCluster: the doctor reports nothing about a healthy cluster. It reports each fault
// with its master, and no longer after the repair.
func TestDoctorOfCluster(t *testing.T) {
	t.Parallel()
	roots := daemontest.ShortDir(t)
	a := newApart(t, 3, fmt.Sprintf("auto_accept: true\nfile_roots: {base: [%s]}\npillar_roots: {base: [%s]}\n", roots, roots)).start()
	one, two, three := a.masters[0], a.masters[1], a.masters[2]
	a.minion("all", a.masters...)
	eventually.Nil(t, soon, "it answers", func() error { return two.PingAll(brine, "all") })
	a.healthy(one)
	few := daemontest.NewMinion(t, brine, "few", []string{one.Host, two.Host}, "").Start()
	finds(t, one, "minions", one.Name, "the minion few knows only")
	finds(t, three, "minions", one.Name, "the minion few knows only")
	few.Kill()
	a.healthy(three)
	out, errs, code := one.Run(brine, "ha", "doctor", one.Dir)
	if !strings.Contains(out, "Checked: members, identity") {
		t.Errorf("%d %s%s", code, out, errs)
	}

	if _, errs, code := two.Run(brine, "cluster", "drain", three.Name); code != 0 {
		t.Fatal(errs)
	}
	finds(t, one, "drain", three.Name, "drained")
	if _, errs, code := two.Run(brine, "cluster", "undrain", three.Name); code != 0 {
		t.Fatal(errs)
	}

	a.healthy(one)

	three.Kill()
	finds(t, one, "members", three.Name, "cannot be reached from "+one.Name)
	// The lists of voters differ, and there are too few voters.
	conf := three.Read("master")
	three.Write("master", conf+fmt.Sprintf("cluster_voters: [%s, 127.99.0.1, 127.99.0.2]\n", three.Name))
	three.Start()
	finds(t, one, "voters", "", "none on "+one.Name+", "+two.Name)
	finds(t, three, "voters", "127.99.0.1", "the witness cannot vote")
	finds(t, three, "voters", "", "1 of 3 voters")
	three.Kill()
	three.Write("master", conf)
	// Another directory of files, and another key than the others know.
	three.Write("master", strings.Replace(conf, "file_roots: {base: ["+roots, "file_roots: {base: ["+three.Dir+"/srv", 1))
	if err := os.MkdirAll(three.Path("srv"), 0o755); err != nil {
		t.Fatal(err)
	}
	three.Write("srv/more.sls", "{}\n")
	three.Start()
	finds(t, two, "data", "", "tree")
	three.Kill()
	three.Write("master", conf)
	three.Start()
	a.equal(one, 3, nil)
	own := one.Path("cluster/peers/" + two.Name + ".pub")
	was := one.Read("cluster/peers/" + two.Name + ".pub")
	if err := os.WriteFile(own, []byte(one.Read("cluster/peers/"+three.Name+".pub")), 0o644); err != nil {
		t.Fatal(err)
	}
	finds(t, one, "identity", two.Name, one.Name+" knows it by")
	if err := os.WriteFile(own, []byte(was), 0o644); err != nil {
		t.Fatal(err)
	}
	a.healthy(two)

	one.Kill()
	if out, errs, code := one.Run(brine, "ha", "doctor", "--cluster"); code != 2 || !strings.Contains(errs, "start it") {
		t.Errorf("of a master that does not run: %d %s %s", code, out, errs)
	}
	conf = one.Read("master")
	one.Write("master", strings.Replace(conf, "cluster_secret: "+secret, "cluster_secret: ''", 1))
	if out, errs, code := one.Run(brine, "ha", "doctor", "--cluster"); code != 2 || !strings.Contains(errs, "cluster_secret") {
		t.Errorf("without a secret: %d %s %s", code, out, errs)
	}
}

// TestDoctorOfSharedDirectory: the same for masters that share a directory.
func TestDoctorOfSharedDirectory(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "", brine, brine).start()
	one, two := f.masters[0], f.masters[1]
	eventually.Nil(t, soon, "nothing is wrong", func() error {
		d, _, err := diagnose(one)
		if err == nil && (len(d.Findings) > 0 || len(d.Masters) != 2) {
			err = fmt.Errorf("%+v", d)
		}
		return err
	})
	two.Kill()
	finds(t, one, "members", two.Name, "cannot be reached")
	two.Start()
	eventually.Nil(t, soon, "nothing is wrong again", func() error {
		d, _, err := diagnose(one)
		if err == nil && len(d.Findings) > 0 {
			err = fmt.Errorf("%+v", d)
		}
		return err
	})
}
