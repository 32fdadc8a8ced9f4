package migrate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/cli/frame"
)

// runIn runs the program with an environment.
func runIn(t *testing.T, environ map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	env := frame.OSEnv()
	env.Stdout, env.Stderr = &out, &errs
	env.Getenv = func(name string) string { return environ[name] }
	code = Applet().Run(t.Context(), env, args)
	return code, out.String(), errs.String()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestCheckCommand: the exit code reports whether something is missing, the first line is the
// summary, and the JSON output is equivalent.
func TestCheckCommand(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/salt/a.sls", "x:\n  rvm.installed: []\n")
	write(t, dir+"/good/a.sls", "x:\n  pkg.installed: []\n")
	write(t, dir+"/etc/master", "root_dir: "+dir+"\nfile_roots: {base: ["+dir+"/salt]}\nfips_mode: true\n")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--tree", dir + "/good"}, 0, "1 of 1 SLS files use only what Brine has. Nothing will be missing.\n"},
		{[]string{"--tree", dir + "/salt"}, 1, "0 of 1 SLS files use only what Brine has; 1 need what is missing. Missing: 1 state (rvm.installed).\n"},
		{[]string{"--config", dir + "/etc"}, 1, "Missing: 1 option (fips_mode), 1 state (rvm.installed).\n"},
		{[]string{"--config", dir + "/etc", "--tree", dir + "/good"}, 1, "Missing: 1 option (fips_mode).\n"},
		{[]string{"--config", dir + "/none"}, 1, "none is not a directory with the configuration of a master or a minion: name it with --config"},
		{[]string{"--tree", dir + "/none"}, 1, "none is not a directory of SLS files"},
		{[]string{"--tree", dir + "/good", "--minions"}, 1, "--minions needs the configuration of the master"},
		{[]string{"--tree", dir + "/good", "more"}, 64, "unexpected argument more"},
	} {
		code, out, errs := runIn(t, nil, append([]string{"check"}, c.args...)...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("%v: exit code %d, no %q in\n%s%s", c.args, code, c.want, out, errs)
		}
	}
	code, out, errs := runIn(t, nil, "check", "--config", dir+"/etc", "--out", "json")
	var report struct {
		Summary  string
		Missing  bool
		Findings []struct {
			Kind, Name string
			Places     []string
			Missing    bool
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
	}
	if !report.Missing || len(report.Findings) != 2 || report.Findings[1].Places[0] != dir+"/salt/a.sls:2" || !strings.Contains(report.Summary, "fips_mode") {
		t.Errorf("%+v", report)
	}
}

// TestStockPython: the Python of an installed stock Salt is found if requested. Brine's own
// salt-call is not a stock Salt.
func TestStockPython(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/brine/salt-call", "\x7fELF")
	write(t, dir+"/shell/salt-call", "#!/bin/sh\n")
	write(t, dir+"/stock/salt-call", "#!/usr/lib/salt/python3.11 -E\n")
	path := map[string]string{"PATH": dir + "/none:" + dir + "/brine:" + dir + "/shell:" + dir + "/stock"}
	env := frame.OSEnv()
	env.Getenv = func(name string) string { return path[name] }
	for _, c := range []struct {
		o    checkOptions
		want string
	}{
		{checkOptions{Minions: true, Stock: "installed"}, "/usr/lib/salt/python3.11"}, {checkOptions{Minions: true}, ""},
		{checkOptions{Stock: "installed"}, ""}, {checkOptions{Minions: true, Stock: "none"}, ""},
		{checkOptions{Minions: true, Stock: "/opt/python"}, "/opt/python"},
	} {
		if got := stockPython(&c.o, env); got != c.want {
			t.Errorf("%+v: %q", c.o, got)
		}
	}
}
