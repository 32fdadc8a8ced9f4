package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/net/crypt"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// mountNamespace returns a command that runs another one in a mount namespace, after a script whose
// $arg is the argument. It skips the test if no namespace can be created.
func mountNamespace(t *testing.T, script, arg string) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mount namespaces can be made by root only")
	}
	within := []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", `arg=$1; shift; ` + script + ` && exec "$@"`, "sh", arg}
	if out, err := exec.Command(within[0], append(within[1:], "true")...).CombinedOutput(); err != nil {
		tools.Without(t, fmt.Sprintf("no directory can be mounted in a namespace here: %v: %s", err, out))
	}
	return within
}

// TestLateCacheDir: a master waits if its mount of cachedir shows outdated data of a peer for a
// while, as attribute caches of network file systems do after a restart.
func TestLateCacheDir(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "auto_accept: true\n", brine, brine)
	one, two := f.masters[0], f.masters[1]
	one.Start()
	token := filepath.Join(f.shared, "cache/brine/masters", one.Name, "token")
	now, err := os.ReadFile(token)
	must(t, err)
	show := func(b []byte) {
		t.Helper()
		must(t, os.WriteFile(token+".new", b, 0o600))
		must(t, os.Rename(token+".new", token))
	}
	// A master waits for some seconds. On a busy machine the new data may not appear in time.
	for try := 1; ; try++ {
		show([]byte("older"))
		known := strings.Count(one.Log(), "older data of "+one.Name)
		two.Launch()
		var looked time.Time
		eventually.Nil(t, soon, "the new master has looked", func() error {
			if looked = time.Now(); two.Alive() && try == 1 && strings.Count(one.Log(), "older data of "+one.Name) == known {
				return errors.New("it has not")
			}
			return nil
		})
		show(now)
		shown := time.Since(looked)
		eventually.Nil(t, soon, "it listens or has ended", func() error {
			c, err := net.Dial("tcp", two.Requests())
			if err == nil {
				c.Close()
			}
			if !two.Alive() {
				return nil
			}
			return err
		})
		if two.Alive() {
			break
		}
		if try == 5 || shown < time.Second/10 {
			t.Fatalf("it ended, although the data came %v after it looked", shown)
		}
	}
	f.minion(brine, "m0", two.Host, "")
	for _, m := range f.masters {
		eventually.Nil(t, soon, "m0 answers to "+m.Name, func() error { return m.PingAll(brine, "m0") })
	}
}

// TestUnmountedShare: a master that starts before its share is mounted exits with the reason, opens
// no port for minions and leaves no key in the mount point. With the share it joins the cluster.
func TestUnmountedShare(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "auto_accept: true\n", brine, brine)
	one, two := f.masters[0], f.masters[1]
	one.Start()
	f.minion(brine, "m0", one.Host, "")
	eventually.Nil(t, soon, "m0 answers", func() error { return one.PingAll(brine, "m0") })

	// What lies below the mount point is another, empty directory.
	below := daemontest.ShortDir(t)
	for _, dir := range []string{"pki", "cache"} {
		must(t, os.Mkdir(filepath.Join(below, dir), 0o700))
	}
	two.Within = mountNamespace(t, `mount --bind "$arg" `+f.shares[1], below)
	for range 2 { // as a service manager does
		two.Launch()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if code := two.Wait(2 * time.Minute); code == 0 {
				t.Error("it ends with exit code 0")
			}
		}()
		for running := true; running; {
			for _, addr := range []string{two.Requests(), two.Publications()} {
				if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
					c.Close()
					t.Fatalf("it takes connections at %s without its share", addr)
				}
			}
			select {
			case <-ended:
				running = false
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	refused(t, two, `cluster_pki_dir .* had no key of the cluster and has none of `+one.Name+`, which runs: .*Is it mounted`)
	for _, name := range []string{"cluster.pem", "cluster.pub"} {
		if _, err := os.Stat(filepath.Join(below, "pki", name)); err == nil {
			t.Errorf("%s is left in the mount point", name)
		}
	}
	two.Within = nil
	two.Start()
	for _, m := range f.masters {
		eventually.Nil(t, soon, "m0 answers to "+m.Name, func() error { return m.PingAll(brine, "m0") })
	}
}

// TestWrongMasterBehindBalancer: a minion that a balancer connects to a master with another key
// closes the connection, so that the next one may reach the right master.
func TestWrongMasterBehindBalancer(t *testing.T) {
	t.Parallel()
	haproxyProgram(t)
	f := newFleet(t, "auto_accept: true\n", brine, brine)
	right, host := f.masters[0], daemontest.Host()
	right.Start()
	wrong := daemontest.NewMaster(t, brine, "wrong", daemontest.Host(), "auto_accept: true\n").Start()
	f.masters[1] = wrong
	f.balanceOver(host, nil, wrong, right, right) // the first connection goes to the first master
	// The minion already knows the right master.
	w := daemontest.NewMinion(t, brine, "m0", []string{right.Host}, "").Start()
	eventually.Nil(t, soon, "m0 answers", func() error { return right.PingAll(brine, "m0") })
	w.Kill()
	w.Write("minion", strings.Replace(w.Read("minion"), "["+right.Host+"]", "["+host+"]", 1))
	was, err := crypt.LoadPublic(w.Path("etc/salt/pki/minion/minion_master.pub"))
	must(t, err)
	// refusals counts the sign-ins answered by a master with another key.
	refusals := func() int { return strings.Count(w.Log(), "the master's public key has fingerprint") }
	met := 0
	for try := 0; met < 1; try++ {
		if try == 20 {
			t.Fatal("the balancer never sends it to the wrong master")
		}
		seen := refusals()
		w.Start()
		eventually.Nil(t, soon, "m0 answers behind the balancer", func() error { return right.PingAll(brine, "m0") })
		if refusals() > seen {
			met++
		}
		w.Kill()
	}
	is, err := crypt.LoadPublic(w.Path("etc/salt/pki/minion/minion_master.pub"))
	if err != nil || !is.Equal(was) {
		t.Errorf("it knows another key now: %v", err)
	}
}

// TestDoctorOfDeletedMember: the doctor does not advise starting a master that was removed from a
// shared directory by deleting its key, although cluster_peers names it.
func TestDoctorOfDeletedMember(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "auto_accept: true\n", brine, brine).start()
	one, two := f.masters[0], f.masters[1]
	well := func() error {
		d, _, err := diagnose(one)
		if err == nil && len(d.Findings) > 0 {
			err = fmt.Errorf("%+v", d.Findings)
		}
		return err
	}
	eventually.Nil(t, soon, "the masters are connected", well)
	two.Kill()
	finds(t, one, "members", two.Name, "cannot be reached from "+one.Name)
	must(t, os.Remove(filepath.Join(f.shared, "pki/peers", two.Name+".pub")))
	eventually.Nil(t, soon, "nothing is wrong", well)
}
