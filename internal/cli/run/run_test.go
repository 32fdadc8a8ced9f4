package run

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"brine/internal/call/client/clienttest"
	"brine/internal/call/fn"
	"brine/internal/catalogue/runners"
	"brine/internal/cli/frame"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/test/tools"
)

const recordings = "../../../testdata/golden/cli"

type outcome struct {
	code           int
	stdout, stderr string
}

func saltRun(ctx context.Context, m *clienttest.Master, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	env := &frame.Env{
		Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
		Getenv: func(name string) string {
			if name == "SALT_CONFIG_DIR" && m != nil {
				return m.Dir
			}
			return ""
		},
		IsTerminal: func(any) bool { return false },
	}
	code := run(ctx, env, args)
	return outcome{code, stdout.String(), stderr.String()}
}

// real runs the runners that do not need a running master.
func real(t *testing.T, conf *value.Dict) func(*value.Dict, func(string, *value.Dict)) *value.Dict {
	reg, err := fn.NewRegistry(nil, runners.New(runners.Deps{Bus: event.NewBus(0)})...)
	if err != nil {
		t.Fatal(err)
	}
	return func(load *value.Dict, progress func(string, *value.Dict)) *value.Dict {
		args := load.Dict("kwarg").List("arg")
		c := &fn.Call{Log: slog.New(slog.DiscardHandler), Config: fn.Tree{Dict: conf},
			Progress: func(part any) { progress("progress", value.DictOf("data", part)) }}
		o := runners.Run(context.Background(), reg, c, fn.Job{Fun: load.Str("fun"), Arg: fn.Wire(args, load.Dict("kwarg").Dict("kwarg"))})
		d := value.DictOf("return", o.Return, "success", o.Success)
		if o.Retcode != 0 {
			d.Set("retcode", int64(o.Retcode))
		}
		return d
	}
}

func returns(ret any) func(*value.Dict, func(string, *value.Dict)) *value.Dict {
	return func(*value.Dict, func(string, *value.Dict)) *value.Dict {
		return value.DictOf("return", ret, "success", true)
	}
}

func TestRecordings(t *testing.T) {
	status := value.DictOf("up", value.ListOf("alpha", "beta"), "down", value.ListOf("gamma"))
	for name, runner := range map[string]func(*value.Dict, func(string, *value.Dict)) *value.Dict{
		"run_async": returns(nil), "run_test_arg": real(t, nil), "run_unknown": real(t, nil), "run_event_send": real(t, nil),
		"run_config": real(t, value.DictOf("interface", "127.0.0.1")), "run_doc_missing": real(t, nil),
		"run_manage_status": returns(status), "run_manage_status_json": returns(status),
		"run_manage_up": returns(value.ListOf("alpha", "beta")), "run_jobs_lookup_missing": returns(value.NewDict(0)),
		"run_jobs_lookup_json": returns(value.DictOf("beta", true, "alpha", true)),
		"eauth_run_denied":     func(*value.Dict, func(string, *value.Dict)) *value.Dict { return nil },
		"run_orch_missing": returns(value.DictOf("data", value.DictOf("vm_master", value.ListOf("No matching sls found for 'nosuch' in env 'base'")),
			"outputter", "highstate", "retcode", 1)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := clienttest.Read(t, recordings, name)
			m := clienttest.Start(t, clienttest.Options{Runner: runner, JIDs: []string{"20261121040452110133"}})
			got := saltRun(t.Context(), m, rec.Args...)
			if name == "eauth_run_denied" { // the message is the master's
				rec.Stdout = "Authentication error occurred.\n"
			}
			if want := (outcome{rec.Exit, rec.Stdout, rec.Stderr}); got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	m := clienttest.Start(t, clienttest.Options{Runner: real(t, nil)})
	for _, c := range []struct {
		args string
		want outcome
	}{
		{"error.error Exception oops", outcome{1, "Exception occurred in runner error.error: Exception: oops\n", ""}},
		{"--quiet error.error Exception oops", outcome{1, "", ""}},
		{"--out=table error.error Exception oops", outcome{1, "Exception occurred in runner error.error: Exception: oops\n", ""}},
		{"test.stdout_print --out=json --out-indent=-1",
			outcome{0, `{"suffix": "progress", "event": {"data": {"message": "foo"}, "_stamp": ""}}` + "\n\"bar\"\n", ""}},
		{"--out=json test.arg a=1 --no-parse a", outcome{0, "{\n    \"args\": [],\n    \"kwargs\": {\n        \"a\": \"1\"\n    }\n}\n", ""}},
		{"--doc a b", outcome{64, "",
			"Usage: salt-run [options] <function> [arguments]\n\nsalt-run: error: You can only get documentation for one method at one time\n"}},
	} {
		got := saltRun(t.Context(), m, strings.Fields(c.args)...)
		got.stdout = regexp.MustCompile(`"_stamp": "[^"]+"`).ReplaceAllString(got.stdout, `"_stamp": ""`)
		if got != c.want {
			t.Errorf("%s\ngot  %+v\nwant %+v", c.args, got, c.want)
		}
	}
	got := saltRun(t.Context(), m, "config.get")
	want := "\nPassed invalid arguments: get() missing 1 required positional argument: 'key'\n\nUsage:\n\n    Return an option"
	if got.code != 0 || !strings.HasPrefix(got.stdout, want) {
		t.Errorf("bad arguments: %+v", got)
	}
}

func TestDocs(t *testing.T) {
	m := clienttest.Start(t, clienttest.Options{Runner: real(t, nil)})
	got := saltRun(t.Context(), m, "-d", "config")
	if got.code != 0 || !strings.HasPrefix(got.stdout, "config.get:\n\n    Return an option") || strings.Contains(got.stdout, "test.arg:") {
		t.Errorf("-d config: %+v", got)
	}
	if got := saltRun(t.Context(), m); got.code != 0 || !strings.Contains(got.stdout, "\ncache.clear_all:\n    \n        Delete") ||
		!strings.Contains(got.stdout, "test.sleep:\n") {
		t.Errorf("no arguments: %d %.200s %s", got.code, got.stdout, got.stderr)
	}
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{})
	m := clienttest.Start(t, clienttest.Options{JIDs: []string{"20261121040452110133"}, Runner: func(*value.Dict, func(string, *value.Dict)) *value.Dict {
		cancel()
		<-begun
		return nil
	}})
	got := saltRun(ctx, m, "test.sleep")
	close(begun)
	if got.code != 0 || !strings.HasPrefix(got.stderr, "\nExiting gracefully on Ctrl-c\n") {
		t.Errorf("got %+v", got)
	}
}

// TestOutputterInPython: a Python outputter of the master shows the result.
func TestOutputterInPython(t *testing.T) {
	tools.NeedPython(t, "python3", "marshal")
	m := clienttest.Start(t, clienttest.Options{Runner: real(t, nil)})
	conf := filepath.Join(m.Dir, "master")
	text, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "\noutputter_dirs: ["+m.Dir+"/own]\nuser: ''\n"...)
	for path, data := range map[string][]byte{
		conf:                   text,
		m.Dir + "/own/mine.py": []byte("def output(data):\n    return '{}: {}'.format(__opts__['output'], sorted(data))\n"),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := saltRun(t.Context(), m, "--out=mine", "test.arg", "a"); got != (outcome{0, "mine: ['args', 'kwargs']\n", ""}) {
		t.Errorf("%+v", got)
	}
}
