package federation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"brine/internal/net/crypt"
	"brine/internal/net/sealed"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// cutTime returns how long TestFaults cuts a site off, 0 until it counts as unreachable.
func cutTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("BRINE_FEDERATION_CUT")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("BRINE_FEDERATION_CUT: %v", err)
	}
	return d
}

// keyOf returns the key of a master.
func keyOf(t *testing.T, n *daemontest.Node) func() *crypt.PrivateKey {
	t.Helper()
	key, err := crypt.LoadPrivate(n.Path("etc/salt/pki/master/master.pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	return func() *crypt.PrivateKey { return key }
}

// commands are commands that were given, by their words.
type commands map[string]string

// complete waits until all are complete at sites with one minion each, and checks that each ran once.
func (f *fleet) complete(given commands, within time.Duration, sites ...string) {
	f.t.Helper()
	for word, jid := range given {
		eventually.Nil(f.t, within, word+" is complete", func() error {
			all, err := f.job(jid)
			for _, name := range sites {
				if s := all[name]; err == nil && (s.State != "stored" || !s.Final || s.OK != 1) {
					err = fmt.Errorf("%s: %+v", name, s)
				}
			}
			if err != nil {
				return err
			}
			rets, err := f.returns(jid)
			for _, name := range sites {
				if err == nil && !strings.Contains(fmt.Sprint(rets["m"+name]), word) {
					err = fmt.Errorf("%v", rets)
				}
			}
			return err
		})
		for _, name := range sites {
			if n := f.times("m"+name, word); n != 1 {
				f.t.Errorf("m%s ran %s %d times", name, word, n)
			}
		}
	}
}

// TestFaults: while a site is cut off, the streams of the hub reach their limit, and then its disk is full.
// Then the disk of the master above is full. BRINE_FEDERATION_CUT is how long the site is cut off.
func TestFaults(t *testing.T) {
	tools.Slow(t)
	f := &fleet{t: t, sites: map[string]*daemontest.Node{}, minions: map[string]*daemontest.Node{}}
	f.above = daemontest.NewMaster(t, brine, "above", daemontest.Host(), "")
	f.finger = keyPair(t, f.above)
	host, far := daemontest.Host(), daemontest.Host()
	bus := daemontest.NewHub(t, "bus", host, fmt.Sprintf("tls_names: ['%s']\n", far), f.finger)
	busDisk := daemontest.NewDisk(t, bus.Path("data"), "48m")
	aboveDisk := daemontest.NewDisk(t, f.above.Path(cachePath), "48m")
	f.buses = append(f.buses, bus.Launch())
	bus.Host = host
	eventually.Nil(t, limit, "the bus has a certificate", func() error { _, err := os.Stat(bus.Path("data/hub.crt")); return err })
	f.above.Write("master", f.above.Read("master")+f.options()+"federation_hub: true\n")
	f.above.Start()
	f.addSite("us", "mus")
	way := newLink(t, far, fmt.Sprintf("%s:%d", host, daemontest.HubPort))
	f.conf = fmt.Sprintf("federation_urls: ['tls://%s']\nfederation_ca: %s\n", way.address(0), bus.Path("data/hub.crt"))
	f.addSite("eu", "meu")

	c := f.client(t, "hub", sealed.NewSealer("hub", sealed.Hub, keyOf(t, f.above)))
	js, err := c.JetStream(nats.MaxWait(5 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	const most = 64 << 10
	for _, name := range []string{"BRINE_COMMANDS", "BRINE_SUMMARIES"} {
		eventually.Nil(t, limit, "the stream "+name+" gets a limit", func() error {
			info, err := js.StreamInfo(name)
			if err != nil {
				return err
			}
			info.Config.MaxBytes = most
			_, err = js.UpdateStream(&info.Config)
			return err
		})
	}

	gate := filepath.Join(t.TempDir(), "gate")
	during := commands{"begun": f.give("--expire", "30m", "*", "cmd.run",
		"echo begun >> /proc/$PPID/cwd/ran; while [ ! -e "+gate+" ]; do sleep 0.1; done; echo begun")}
	f.begun("meu", "begun")
	cut := time.Now()
	way.set(linkCut)
	absent := func() error {
		out, errs, _ := f.above.Run(brine, "salt-run", "federation.sites")
		if eu, _, _ := strings.Cut(out, "us:"); !strings.Contains(strings.ToLower(eu), "connected:\n        false") {
			return fmt.Errorf("%s %s", out, errs)
		}
		return nil
	}
	eventually.Nil(t, limit, "the site counts as unreachable", absent)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pad := " # " + strings.Repeat("x", 8<<10)
	give := func(word string) {
		t.Helper()
		during[word] = f.give("--expire", "30m", "*", "cmd.run", ledger(word, 0)+pad)
	}
	for i := range 12 {
		give(fmt.Sprint("full", i))
	}
	eventually.Nil(t, limit, "the stream has reached its limit", func() error {
		info, err := js.StreamInfo("BRINE_COMMANDS")
		if err == nil && (info.State.Bytes > most || info.State.FirstSeq < 2) {
			err = fmt.Errorf("%+v", info.State)
		}
		return err
	})
	busDisk.Fill()
	for i := range 3 {
		give(fmt.Sprint("disk", i))
	}
	expired := f.give("--expire", "1", "*", "cmd.run", ledger("expired", 0))
	since := time.Now()
	f.isComplete(during["disk2"], "us") // what needs no stream goes on
	time.Sleep(max(time.Until(since.Add(time.Second)), time.Until(cut.Add(cutTime(t)))))
	busDisk.Free()
	way.set(linkUp)
	back := time.Now()
	f.complete(during, limit, "eu", "us")
	t.Logf("%d commands were complete %s after the site was connected again, which was cut off for %s", len(during), time.Since(back).Round(time.Millisecond),
		back.Sub(cut).Round(time.Second))
	all, err := f.job(expired)
	if err != nil || all["eu"].State != "expired" || f.times("meu", "expired") != 0 {
		t.Errorf("the expired command ran %d times: %+v %v", f.times("meu", "expired"), all, err)
	}
	eventually.Nil(t, limit, "the streams store messages again", func() error {
		_, err := js.Publish("brine.cmd.none", []byte("x"))
		return err
	})
	f.fullAbove(aboveDisk)
}

// fullAbove: a master above whose disk is full gives no command that it cannot store, and confirms no
// result; results arrive when it has space again.
func (f *fleet) fullAbove(disk *daemontest.Disk) {
	t := f.t
	gate := filepath.Join(t.TempDir(), "gate")
	given := commands{"waits": f.give("--expire", "30m", "*", "cmd.run",
		"echo waits >> /proc/$PPID/cwd/ran; while [ ! -e "+gate+" ]; do sleep 0.1; done; echo waits")}
	f.begun("meu", "waits")
	f.begun("mus", "waits")
	disk.Fill()
	out, errs, code := f.above.Run(brine, "salt", "--expire", "30m", "-t", "5", "*", "cmd.run", ledger("refused", 0)+" # "+strings.Repeat("y", 100<<10))
	if code == 0 || !strings.Contains(out+errs, "no space left") {
		t.Errorf("a command that cannot be stored: %d %.300s %.300s", code, out, errs)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"eu", "us"} {
		eventually.Nil(t, limit, "the site "+name+" has the return", func() error {
			out, errs, _ := f.sites[name].Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", given["waits"])
			if !strings.Contains(out, "waits") {
				return errors.New(out + errs)
			}
			return nil
		})
	}
	disk.Free()
	f.complete(given, limit, "eu", "us")
	eventually.Nil(t, limit, "commands work again", func() error { return f.above.PingOnly(brine, "meu", "mus") })
	if n := f.times("meu", "refused") + f.times("mus", "refused"); n > 0 {
		t.Errorf("a command that was not stored ran %d times", n)
	}
}
