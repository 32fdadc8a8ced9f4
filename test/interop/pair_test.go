package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestPairs combines every kind of master with every kind of minion, except stock with stock, over
// each transport.
func TestPairs(t *testing.T) {
	for _, transport := range []string{"zeromq", "tcp", "ws"} {
		for _, p := range []struct{ master, minion kind }{{brine, brine}, {brine, stock}, {stock, brine}} {
			t.Run(fmt.Sprintf("%s/%s-master/%s-minion", transport, p.master, p.minion), func(t *testing.T) {
				if p.master == stock || p.minion == stock {
					stockTree(t)
				}
				testPair(t, p.master, p.minion, transport)
			})
		}
	}
}

func testPair(t *testing.T, mk, wk kind, transport string) {
	common := "transport: " + transport + "\n"
	host := daemontest.Host()
	master := newMaster(t, mk, "boss", host, common)
	minion := newMinion(t, wk, "worker", []string{host}, common+"grains: {role: web, deployed: {rack: 7}}\n")
	master.Start()
	tags := master.Events()
	minion.Start()

	master.Accept("worker")
	eventually.Nil(t, stockLimit, "the minion answers", func() error { return master.PingAll(mk, "worker") })
	eventually.Nil(t, stockLimit, "its start event", func() error { return has(tags(), "salt/minion/worker/start") })

	checkCommands(t, master, mk)
	for _, want := range []string{"salt/auth", "salt/key", "minion_start", "minion/refresh/worker", "/ret/worker", "/new"} {
		if err := has(tags(), want); err != nil {
			t.Error(err)
		}
	}
	if mk == stock {
		checkCommands(t, master, brine) // our command line on a stock master
	}
	checkRotation(t, master, mk)

	if transport == "ws" && wk == stock {
		t.Log("left out: Salt's own minion does not come back over ws when its master was restarted, with any master")
		return
	}
	master.Kill()
	master.Start()
	revived := false
	took := eventually.Nil(t, stockLimit, "the minion answers after a restart of the master", func() error {
		if wk == stock && !revived && strings.Contains(minion.Log(), staleSignIn) {
			t.Log("the stock minion has lost its request channel by a defect of its own; starting it again")
			revived = true
			minion.Kill()
			minion.Start()
		}
		return master.PingAll(mk, "worker")
	})
	t.Logf("answered %.1f s after the restarted master listened", took.Seconds())
	checkCommands(t, master, mk)
}

// staleSignIn is the message of a stock minion (3006 to 3008) that returns nothing until it is started
// again. When it loses a master over tcp, it signs in twice at the same time: by the subscription,
// which connects again, and by the new master connection of minion.py. If the first ends first,
// AsyncAuth._authenticate of crypt.py of the second reads _creds, which it does not have yet. Its
// future never ends, so that the request channel, which was closed before, is not made again. No
// master can prevent that: both sign-ins are complete, and their order is that of the minion.
const staleSignIn = "'AsyncAuth' object has no attribute '_creds'"

func has(text, want string) error {
	if !strings.Contains(text, want) {
		return fmt.Errorf("no event with %q among %q", want, text)
	}
	return nil
}

// checkCommands runs essential commands with the command line of kind k.
func checkCommands(t *testing.T, master *node, k kind) {
	t.Helper()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"worker", "test.ping"}, "map[worker:true]"},
		{[]string{"w[o]r*", "cmd.run", "echo $((40+2)) äöü"}, "map[worker:42 äöü]"},
		{[]string{"-G", "role:web", "cmd.run", "exit 3", "python_shell=True"}, "map[worker:]"},
		{[]string{"-G", "deployed:rack:7", "grains.get", "role"}, "map[worker:web]"},
		{[]string{"-L", "worker,other", "test.echo", "[1, two]"}, "map[worker:[1 two]]"},
		{[]string{"-E", "work(er|man)", "test.arg", "1", "a=b"}, "map[worker:map[args:[1] kwargs:map[a:b]]]"},
		{[]string{"-C", "G@role:web and not E@boss.*", "test.fib", "7"}, ""},
		{[]string{"*", "no.such"}, "map[worker:'no.such' is not available.]"},
	} {
		rets, err := master.SaltJSON(k, c.args...)
		if err != nil {
			t.Errorf("salt %q: %v", c.args, err)
			continue
		}
		rets = drop(rets, "other")
		if c.want == "" {
			c.want = fmt.Sprint(rets) // only that there is an answer
			if rets["worker"] == nil {
				t.Errorf("salt %q: no answer", c.args)
			}
		}
		clean(rets)
		if got := fmt.Sprint(rets); got != c.want {
			t.Errorf("salt %q: got %s, want %s", c.args, got, c.want)
		}
	}
}

func drop(m map[string]any, key string) map[string]any {
	delete(m, key)
	return m
}

// clean removes the data about the job that a stock minion adds to test.arg.
func clean(m map[string]any) {
	w, ok := m["worker"].(map[string]any)
	if !ok {
		return
	}
	kw, _ := w["kwargs"].(map[string]any)
	for k := range kw {
		if strings.HasPrefix(k, "__pub_") {
			delete(kw, k)
		}
	}
}

// checkRotation makes the master replace its AES key, and expects the next command to be answered.
func checkRotation(t *testing.T, master *node, k kind) {
	t.Helper()
	path := filepath.Join(master.Dir, "var/cache/salt/master/.dfn")
	if err := os.WriteFile(path+"-next", []byte(master.Name), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"-next", path); err != nil {
		t.Fatal(err)
	}
	eventually.Nil(t, stockLimit, "the master takes the request for a new key", func() error {
		for _, path := range []string{path, path + "-rotating"} { // the second one is of a master of ours
			if _, err := os.Lstat(path); err == nil {
				return fmt.Errorf("%s is still there", path)
			}
		}
		return nil
	})
	if err := master.PingAll(k, "worker"); err != nil {
		t.Errorf("after a rotation of the AES key: %v", err)
	}
}
