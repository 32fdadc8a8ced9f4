package interop

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// python runs code with stock Salt's packages. args are the arguments of the code.
func python(t *testing.T, code string, args ...string) (out string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := daemontest.Stock.Command(ctx, t, "salt")
	c = stripped(c, append([]string{"-c", code}, args...))
	b, err := c.CombinedOutput()
	return string(b), err
}

// stripped makes c run something else with the same interpreter.
func stripped(c *exec.Cmd, args []string) *exec.Cmd {
	c.Args = slices.Concat(c.Args[:3], args) // python -W ignore
	return c
}

// localClient calls what Salt's own client can do. If waiting for a quick job fails, it takes the
// whole timeout of 20 seconds; half of that is enough for a busy machine.
const localClient = `
import sys, time
import salt.config, salt.client, salt.runner, salt.netapi
path, minion = sys.argv[1:]
opts = salt.config.client_config(path)
local = salt.client.LocalClient(c_path=path)
def timed(what, call, want):
    start = time.time()
    got = call()
    took = time.time() - start
    if got != want:
        sys.exit("%s: %r, want %r" % (what, got, want))
    if took > 10:
        sys.exit("%s: %.2f s" % (what, took))
for i in range(10):
    timed("cmd", lambda: local.cmd(minion, "test.ping", timeout=20), {minion: True})
for i in range(3):
    timed("a client of its own", lambda: salt.client.LocalClient(c_path=path).cmd(minion, "test.ping", timeout=20), {minion: True})
    timed("several functions", lambda: local.cmd(minion, ["test.ping", "test.echo"], [[], ["x"]], timeout=20), {minion: {"test.ping": True, "test.echo": "x"}})
    timed("cmd_iter_no_block", lambda: [r for r in local.cmd_iter_no_block(minion, "test.ping", timeout=20) if r and r.get(minion)][0][minion]["ret"], True)
conf = salt.config.master_config(path)
for i in range(3):
    runner = salt.runner.RunnerClient(conf)
    timed("orchestrate", lambda: runner.cmd("state.orchestrate", ["orch"], print_event=False)["retcode"], 0)
    api = salt.netapi.NetapiClient(conf)
    login = {"eauth": "auto", "username": "ops", "password": "x"}
    timed("netapi local", lambda: api.run(dict(login, client="local", tgt=minion, fun="test.ping", timeout=20)), {minion: True})
timed("netapi runner", lambda: api.run(dict(login, client="runner", fun="manage.up", timeout=20)), [minion])
timed("netapi wheel", lambda: api.run(dict(login, client="wheel", fun="key.list", match="accepted"))["data"]["return"], {"minions": [minion]})
jid = local.cmd_async(minion, "test.echo", ["kept"])
for i in range(100):
    got = local.get_cache_returns(jid)
    if got:
        break
    time.sleep(0.1)
if got != {minion: {"ret": "kept"}} and got != {minion: {"ret": "kept", "out": "nested"}}:
    sys.exit("get_cache_returns: %r" % got)
timed("jobs.lookup_jid", lambda: runner.cmd("jobs.lookup_jid", [jid], print_event=False), {minion: "kept"})
timed("local_cache", lambda: local.returners["local_cache.get_jid"](jid)[minion]["return"], "kept")
`

// TestStockLocalClient: programs that use Salt's Python client on a master's host are as fast as
// with a stock master.
func TestStockLocalClient(t *testing.T) {
	stockTree(t)
	t.Parallel()
	srv := t.TempDir()
	m := newMaster(t, brine, "boss", daemontest.Host(),
		"auto_accept: true\ntimeout: 20\njob_cache_files: true\nnetapi_enable_clients: [local, runner, wheel]\nexternal_auth: {auto: {'*': ['.*', "+
			"'@runner', '@wheel']}}\nfile_roots: {base: ["+srv+"]}\n")
	if err := os.WriteFile(filepath.Join(srv, "orch.sls"), []byte("ping:\n  salt.function:\n    - name: test.ping\n    - tgt: m1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.Start()
	newMinion(t, brine, "m1", []string{m.Host}, "").Start()
	eventually.Nil(t, stockLimit, "the minion answers", func() error { return m.PingAll(brine, "m1") })
	if out, err := python(t, localClient, m.Path("master"), "m1"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
