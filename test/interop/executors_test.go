package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"brine/internal/host/proc"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// executors are modules of a user, by their files on the file server.
var executors = map[string]string{
	"_executors/noted.py": `
import json
import os

def __virtual__():
    return "note"

def execute(opts, data, func, args, kwargs):
    own = {k: v for k, v in kwargs.items() if not k.startswith("__pub_")}
    if not callable(func):
        own = kwargs["jid"] == data["jid"]
    got = [data["fun"], callable(func), list(args), own, data.get("executor_opts"), opts["id"] == __grains__["id"], data["tgt_type"]]
    with open(os.path.join(opts["root_dir"], "noted"), "a") as out:
        out.write(json.dumps(got) + "\n")
    if "suffix" in data.get("executor_opts", {}):
        args[0] += data["executor_opts"]["suffix"]
    return None
`,
	"_executors/wrap.py": `
from salt.exceptions import CommandExecutionError

def execute(opts, data, func, args, kwargs):
    if not callable(func):
        return [func, args, sorted(kwargs)]
    if data["fun"] == "test.version":
        raise CommandExecutionError("not this one")
    if data["fun"] == "test.fib":
        return {}["missing"]
    if data["fun"] == "test.true":
        __context__["retcode"] = 7
        return "not called"
    got = __executors__["direct_call.execute"](opts, data, func, args, kwargs)
    return [got, "splay.execute" in __executors__, "sudo.execute" in __executors__, "none.execute" in __executors__]

def allow_missing_func(function):
    return function.startswith("nowhere.")
`,
	"nothing.sls": "{}\n",
	"_modules/mine.py": `
def hi(name="you", **kwargs):
    return "hello {} {}".format(name, sorted(k for k in kwargs if not k.startswith("__pub_")))
`,
}

// executed are jobs with executors: arguments of salt, of which ID stands for the minion, and the
// result with the return code, as recorded from stock minions.
var executed = []struct{ line, want string }{
	{"--module-executors=[note,direct_call] ID test.echo x", `"x" 0`},
	{"--module-executors=[note,direct_call] --executor-opts={suffix:~'!'} ID test.echo x", `"x!" 0`},
	{"--module-executors=note ID test.echo x", `null 0`},
	{"--module-executors=[note,direct_call] ID mine.hi Ann a=1", `"hello Ann ['a']" 0`},
	{"--module-executors=wrap ID mine.hi Ann", `["hello Ann []",true,false,false] 0`},
	{"--module-executors=[note,wrap] ID cmd.run exit~3", `["",true,false,false] 3`},
	{"--module-executors=wrap ID test.true", `"not called" 7`},
	{"--module-executors=wrap ID test.version", `"ERROR: not this one" 1`},
	{"--module-executors=wrap ID test.fib 3", `"The minion function caused an exception: Traceback KeyError: 'missing'" 1`},
	{"--module-executors=[note,wrap] ID nowhere.to a 1", `["nowhere.to",["a",1],["arg","fun","jid","module_executors","ret","tgt","tgt_type","user"]] 0`},
	{"--module-executors=[note,wrap] ID elsewhere.to a", `"'elsewhere.to' is not available." 1`},
	{"--module-executors=[splay,wrap] --executor-opts={splaytime:~1} ID test.ping", `[true,true,false,false] 0`},
	{"--module-executors=gone ID test.ping", `"ERROR executing 'test.ping': Executor 'gone' is not available" 1`},
	{"--module-executors=sudo ID test.ping", `"ERROR executing 'test.ping': Executor 'sudo' is not available" 1`},
}

// bySudo are jobs of a minion with sudo_user, the same way, and the command line of sudo, without
// the keywords that carry data of the job.
var bySudo = []struct{ line, want, said string }{
	{"ID test.ping", `true 0`, "test.ping|"},
	{"--module-executors=[splay,direct_call] --executor-opts={splaytime:~1} ID test.echo it's~1", `"it's 1" 0`, "test.echo|it's 1|"},
	{"ID test.arg a~b [1,x] k={c:~true}", `{"args":["a b",[1,"x"]],"kwargs":{"k":{"c":true}}} 0`, "test.arg|a b|[1, 'x']|k={'c': True}|"},
	{"ID mine.hi", `"hello you []" 0`, "mine.hi|"},
	{"ID state.apply nothing test=true", `{} 2`, "state.apply|nothing|test=True|concurrent=True|"},
}

// noted is what the executor note has written.
const noted = `["test.echo", true, ["x"], {}, null, true, "glob"]
["test.echo", true, ["x"], {}, {"suffix": "!"}, true, "glob"]
["test.echo", true, ["x"], {}, null, true, "glob"]
["mine.hi", true, ["Ann"], {"a": 1}, null, true, "glob"]
["cmd.run", true, ["exit 3"], {}, null, true, "glob"]
["nowhere.to", false, ["a", 1], true, null, true, "glob"]
`

// traceLines is what stands between the first and the last line of an exception.
var traceLines = regexp.MustCompile(`(Traceback) \(most.*\\n(KeyError: 'missing')(\\n)?`)

// TestExecutors: executors of a user run the same way on Brine's and on stock minions, and sudo
// gets the same command lines.
func TestExecutors(t *testing.T) {
	tools.NeedPython(t, "python3", "marshal")
	for _, k := range []kind{brine, stock} {
		t.Run(string(k), func(t *testing.T) {
			if k == stock {
				stockTree(t)
			}
			t.Parallel()
			testExecutors(t, k)
		})
	}
}

func testExecutors(t *testing.T, k kind) {
	srv, bin := daemontest.ShortDir(t), daemontest.ShortDir(t)
	for name, text := range executors {
		path := filepath.Join(srv, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A program sudo that notes its arguments and runs them as the same user, and the salt-call that it finds.
	words := k.Command(context.Background(), t, "salt-call").Args
	for i := range words {
		words[i] = proc.Quote(words[i])
	}
	for name, text := range map[string]string{
		"sudo":      "printf '%s|' \"$@\" >>" + bin + "/said\necho >>" + bin + "/said\n[ \"$2\" = worker ] || exit 9\nshift 2\nexec \"$@\"\n",
		"salt-call": "exec " + strings.Join(words, " ") + " \"$@\"\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	m := newMaster(t, brine, "boss", daemontest.Host(), "auto_accept: true\ntimeout: 20\nfile_roots: {base: ["+srv+"]}\n")
	m.Start()
	plain := newMinion(t, k, "plain", []string{m.Host}, "").Start()
	behind := newMinion(t, k, "behind", []string{m.Host}, "sudo_user: worker\n")
	behind.Within = []string{"/usr/bin/env", "PATH=" + bin + ":" + os.Getenv("PATH")}
	behind.Start()
	eventually.Nil(t, stockLimit, "the minions answer", func() error { return m.PingAll(brine, "plain", "behind") })

	events := m.Tagged("salt/job/")
	// run returns the result of a job with its return code.
	run := func(id, line string) string {
		t.Helper()
		args := strings.Fields(line)
		for i, a := range args {
			if args[i] = strings.ReplaceAll(a, "~", " "); a == "ID" {
				args[i] = id
			}
		}
		// A function behind sudo may return twice: its salt-call has a job of its own.
		fun := args[slices.Index(args, id)+1]
		said := len(returned(events(), id, fun))
		m.Run(brine, "salt", append([]string{"-t", "60"}, args...)...)
		var rets []string
		eventually.Nil(t, stockLimit, line+" returns", func() error {
			if rets = returned(events(), id, fun); len(rets) == said {
				return errors.New("no return")
			}
			return nil
		})
		var ret struct {
			Return  any
			Retcode int
		}
		if err := json.Unmarshal([]byte(rets[said]), &ret); err != nil {
			t.Fatal(err)
		}
		if d, ok := ret.Return.(map[string]any); ok {
			if kwargs, ok := d["kwargs"].(map[string]any); ok {
				maps.DeleteFunc(kwargs, func(name string, _ any) bool { return strings.HasPrefix(name, "__pub_") })
			}
		}
		var text strings.Builder
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		if err := e.Encode(ret.Return); err != nil {
			t.Fatal(err)
		}
		return traceLines.ReplaceAllString(fmt.Sprintf("%s %d", strings.TrimSpace(text.String()), ret.Retcode), "$1 $2")
	}
	if got := run("plain", "ID saltutil.sync_all"); !strings.Contains(got, `"executors":["executors.noted","executors.wrap"]`) {
		t.Fatal(got)
	}
	for _, x := range executed {
		if got := run("plain", x.line); got != x.want {
			t.Errorf("%s: %s, want %s", x.line, got, x.want)
		}
	}
	if got := plain.Read("noted"); got != noted {
		t.Errorf("the executor has noted %s", got)
	}

	run("behind", "ID saltutil.sync_modules")
	var want strings.Builder
	for _, x := range bySudo {
		if got := run("behind", x.line); got != x.want {
			t.Errorf("%s by sudo: %s, want %s", x.line, got, x.want)
		}
		want.WriteString("-u|worker|salt-call|--out|json|--metadata|-c|" + behind.Dir + "|--|" + x.said + "\n")
	}
	said, err := os.ReadFile(filepath.Join(bin, "said"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(jobData.ReplaceAllString(string(said), ""), "\n")
	if got := strings.Join(lines[max(len(lines)-len(bySudo)-1, 0):], ""); got != want.String() {
		t.Errorf("sudo got\n%s, want\n%s", got, want.String())
	}
}

// jobData is a keyword with data of the job.
var jobData = regexp.MustCompile(`__pub_[^|]*\|`)

// returned returns the data of the events with returns of a minion for a function.
func returned(events, id, fun string) (rets []string) {
	for line := range strings.Lines(events) {
		tag, data, _ := strings.Cut(line, "\t")
		if strings.HasSuffix(tag, "/ret/"+id) && strings.Contains(data, `"fun": "`+fun+`"`) {
			rets = append(rets, data)
		}
	}
	return rets
}
