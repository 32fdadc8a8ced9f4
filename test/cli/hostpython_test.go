package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// hostProgram is a program of a user on a master's machine. It prints what is the same with Salt's
// package and with Brine's.
const hostProgram = `
import os, sys, threading
try:
    import tornado.queues  # Salt imports too little of it
except ImportError:
    pass
import salt.client, salt.config, salt.runner, salt.utils.event, salt.wheel
path = sys.argv[1]
def tried(call):
    try:
        return call()
    except Exception as exc:
        return type(exc).__name__
local = salt.client.LocalClient(c_path=path)
print("cmd", local.cmd("alpha", "test.ping"))
print("args", local.cmd("alpha", "test.echo", [{"a": [1, None, "x", 2.5]}]), local.cmd("alpha", "test.kwarg", kwarg={"n": 1})["alpha"]["n"])
print("list", local.cmd(["alpha"], "test.echo", ["l"], tgt_type="list"))
print("several", local.cmd("alpha", ["test.ping", "test.echo"], [[], ["two"]]))
print("iter", [sorted(r) for r in local.cmd_iter("alpha", "test.ping")], [r["alpha"]["ret"] for r in local.cmd_iter("alpha", "test.echo", ["it"])])
print("full", {k: v["ret"] for k, v in local.cmd("alpha", "test.ping", full_return=True).items()})
print("batch", list(local.cmd_batch("alpha", "test.ping", batch="1")))
print("none", local.cmd("no-such-minion", "test.ping"))
print("missing", local.cmd("alpha", "no.such"))
print("job", len(local.cmd_async("alpha", "test.ping")), sorted(local.run_job("alpha", "test.ping", timeout=5)))
creds = dict(eauth="sharedsecret", username="ops", password="s3cret")
print("eauth", local.cmd("alpha", "test.ping", **creds), tried(lambda: local.cmd("alpha", "cmd.run", ["id"], **creds)),
      tried(lambda: local.cmd("alpha", "test.ping", **dict(creds, password="wrong"))))
conf = salt.config.client_config(path)
print("conf", conf["conf_file"] == path, conf["sock_dir"] == salt.config.master_config(path)["sock_dir"], conf["interface"] != "")
runner = salt.runner.RunnerClient(conf)
print("runner", runner.cmd("manage.up", print_event=False), runner.cmd("test.arg", ["a"], kwarg={"b": 2}, print_event=False)["kwargs"])
print("no runner", tried(lambda: runner.cmd("no.such", print_event=False)))
print("runner by eauth", runner.cmd_sync(dict(creds, fun="manage.up")), tried(lambda: runner.cmd_sync(dict(creds, fun="jobs.active"))))
wheel = salt.wheel.WheelClient(conf)
print("wheel", wheel.cmd("key.list", ["accepted"], print_event=False), tried(lambda: wheel.cmd_sync(dict(creds, fun="key.list_all"))))
with salt.utils.event.get_master_event(conf, conf["sock_dir"]) as bus:
    print("fired", bus.fire_event({"n": 1}, "mine/first"))
    got = bus.get_event(wait=10, tag="mine/", full=True)
    print("event", got["tag"], got["data"]["n"], bus.get_event(wait=0.2, tag="no/such/tag"))
    jid = local.cmd_async("alpha", "test.echo", ["seen"])
    print("return", bus.get_event(wait=20, tag="salt/job/{}/ret/".format(jid))["return"])
`

// alone are parts that only Brine's package does, or does better.
const alone = `
import time
sums = []
def work(n):
    for i in range(10):
        sums.append(local.cmd("alpha", "test.echo", [n * 100 + i])["alpha"])
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print("threads", sorted(sums) == sorted(n * 100 + i for n in range(8) for i in range(10)))
child = os.fork()
if child == 0:
    os._exit(0 if local.cmd("alpha", "test.ping") == {"alpha": True} else 3)
print("fork", os.waitpid(child, 0)[1], local.cmd("alpha", "test.ping"))
import brine_helper
brine_helper.pipe.child.kill()
time.sleep(0.5)
print("killed", tried(lambda: local.cmd("alpha", "test.ping")) in ("SaltClientError", {"alpha": True}), local.cmd("alpha", "test.ping"))
ends = []
def hang():
    ends.append(tried(lambda: local.cmd("alpha", "test.sleep", [60], timeout=60)))
threads = [threading.Thread(target=hang, daemon=True) for n in range(8)]
[t.start() for t in threads]
time.sleep(1)
pipe = brine_helper.pipe
def end_and_begin(end=pipe.end):
    end()
    pipe.end = end
    pipe.connect()  # before the other threads see the end
pipe.end = end_and_begin
pipe.child.kill()
pings = [tried(lambda: local.cmd("alpha", "test.ping")) for i in range(3)]
[t.join(20) for t in threads]
print("killed under", ends == ["SaltClientError"] * 8, pings[-1])
for other in ("/no/such/master",):
    try:
        salt.client.LocalClient(c_path=other)
    except salt.exceptions.SaltClientError as exc:
        print("other", "uses the master of {} already".format(path) in str(exc))
print("stored", {k: v["ret"] for k, v in local.get_cache_returns(jid).items()})
print("caller", salt.client.Caller(os.path.join(sys.argv[2], "minion")).cmd("test.echo", ["a: 1", 5, {"x": None}]))
`

// hostPython runs a program with the package of Brine.
func hostPython(t *testing.T, source string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	python := tools.NeedPython(t, "python3", "marshal")
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	pkg := filepath.Join(dir, "package")
	if out, err := daemontest.Brine.Command(ctx, t, "python", "install", pkg).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	brine := daemontest.Brine.Command(ctx, t, "python").Path
	c := exec.CommandContext(ctx, python, append([]string{"-c", source}, args...)...)
	c.Env = append(os.Environ(), "PYTHONPATH="+pkg, "BRINE="+brine)
	return output(t, c)
}

func output(t *testing.T, c *exec.Cmd) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

const hostConf = "sharedsecret: s3cret\nexternal_auth:\n  sharedsecret:\n    ops: ['test.*', {'@runner': ['manage.*']}]\n"

const wantHost = `cmd {'alpha': True}
args {'alpha': {'a': [1, None, 'x', 2.5]}} 1
list {'alpha': 'l'}
several {'alpha': {'test.ping': True, 'test.echo': 'two'}}
iter [['alpha']] ['it']
full {'alpha': True}
batch [{'alpha': True}]
No minions matched the target. No command was sent, no jid was assigned.
none {}
missing {'alpha': "'no.such' is not available."}
job 20 ['jid', 'minions']
eauth {'alpha': True} AuthorizationError AuthenticationError
conf True True True
runner ['alpha'] {'b': 2}
no runner KeyError
runner by eauth ['alpha'] EauthAuthenticationError
wheel {'minions': ['alpha']} EauthAuthenticationError
fired True
event mine/first 1 None
return seen
`

// TestHostPython: programs on a master's machine use the names of Salt's package without it.
func TestHostPython(t *testing.T) {
	host := daemontest.Host()
	m := daemontest.NewMaster(t, daemontest.Brine, "boss", host, "auto_accept: true\n"+hostConf).Start()
	w := daemontest.NewMinion(t, daemontest.Brine, "alpha", []string{host}, "").Start()
	eventually.Nil(t, time.Minute, "alpha answers", func() error { return m.PingAll(daemontest.Brine, "alpha") })
	file := filepath.Join(m.Dir, "master")
	out, errs, code := hostPython(t, hostProgram+alone, file, w.Dir)
	want := wantHost + `threads True
fork 0 {'alpha': True}
killed True {'alpha': True}
killed under True {'alpha': True}
other True
stored {'alpha': 'seen'}
caller ['a: 1', 5, {'x': None}]
`
	if out != want || code != 0 {
		t.Errorf("exit code %d, got\n%s\nwant\n%s\nstderr %s", code, out, want, errs)
	}

	// Clear errors, of salt.client's class.
	for what, c := range map[string]struct{ source, want string }{
		"invalid file": {"import salt.client, sys\nsalt.client.LocalClient(c_path=sys.argv[1])", "SaltClientError: "},
		"no master": {"import salt.client, sys\nsalt.client.LocalClient(c_path=sys.argv[2]).cmd('*', 'test.ping')",
			"SaltClientError: The salt master could not be contacted"},
		"no program": {"import os, salt.client\nos.environ['BRINE'] = '/no/such/brine'\nsalt.client.LocalClient()", "SaltClientError: cannot start /no/such/brine"},
		"absent":     {"import salt.cloud\nsalt.cloud.CloudClient()", "Brine does not provide salt.cloud.CloudClient"},
	} {
		bad, idle := filepath.Join(t.TempDir(), "master"), filepath.Join(t.TempDir(), "master")
		for path, text := range map[string]string{bad: "a: [\n", idle: "interface: " + daemontest.Host() + "\ntimeout: 1\nroot_dir: " + t.TempDir() + "\n"} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if what == "invalid file" {
			c.want += bad
		}
		out, errs, code := hostPython(t, c.source, bad, idle)
		if code == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %d %s %s", what, code, out, errs)
		}
	}
}

// TestHostPythonIsSalt: the same program prints the same with Salt's package.
func TestHostPythonIsSalt(t *testing.T) {
	daemontest.StockTree(t)
	host := daemontest.Host()
	m := daemontest.NewMaster(t, daemontest.Brine, "boss", host, "auto_accept: true\n"+hostConf).Start()
	daemontest.NewMinion(t, daemontest.Brine, "alpha", []string{host}, "").Start()
	eventually.Nil(t, time.Minute, "alpha answers", func() error { return m.PingAll(daemontest.Brine, "alpha") })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := daemontest.Stock.Command(ctx, t, "salt")
	c.Args = append(c.Args[:3:3], "-c", hostProgram, filepath.Join(m.Dir, "master"))
	if out, errs, _ := output(t, c); out != wantHost {
		t.Errorf("got\n%s\nwant\n%s\nstderr %s", out, wantHost, errs)
	}
}
