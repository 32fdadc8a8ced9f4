package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"brine/internal/cli/frame"
)

// testEnv returns an environment with empty input, and the output buffers.
func testEnv() (env *frame.Env, stdout, stderr *bytes.Buffer) {
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	env = &frame.Env{
		Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr,
		Getenv: func(string) string { return "" }, IsTerminal: func(any) bool { return false },
	}
	return env, stdout, stderr
}

func TestProgramByName(t *testing.T) {
	var got string
	echo := func(name string) frame.Applet {
		return frame.Applet{Name: name, Summary: "echo", Run: func(_ context.Context, _ *frame.Env, args []string) int {
			got = name + ":" + strings.Join(args, ",")
			return 7
		}}
	}
	applets := []frame.Applet{echo("salt"), echo("salt-key")}
	for argv, want := range map[string]string{
		"/usr/bin/salt -v x":     "salt:-v,x",
		"salt-key -L":            "salt-key:-L",
		"./salt-key.exe -L":      "salt-key:-L",
		"brine salt-key -L":      "salt-key:-L",
		"brine key -L":           "salt-key:-L",
		"brine salt * test.ping": "salt:*,test.ping",
	} {
		got = ""
		env, _, stderr := testEnv()
		if code := Main(t.Context(), env, applets, strings.Fields(argv)); code != 7 || got != want {
			t.Errorf("%s: ran %q with code %d, want %q; stderr %s", argv, got, code, want, stderr)
		}
	}
}

func TestUnknownProgram(t *testing.T) {
	env, _, stderr := testEnv()
	code := Main(t.Context(), env, Applets(), []string{"brine", "kye", "-L"})
	if code != frame.ExitUsage || !strings.HasSuffix(stderr.String(), "\n\nbrine: error: no such program: kye (did you mean key?)\n") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
	if !strings.HasPrefix(stderr.String(), "Usage: brine PROGRAM") || !strings.Contains(stderr.String(), "salt-key") {
		t.Errorf("no usage in %q", stderr)
	}
	env, _, _ = testEnv()
	if code := Main(t.Context(), env, Applets(), []string{"brine"}); code != frame.ExitUsage {
		t.Errorf("no arguments: code %d", code)
	}
}

// TestAbsentProgram: programs of Salt that Brine lacks say so, and name the alternative.
func TestAbsentProgram(t *testing.T) {
	for argv, want := range map[string]string{
		"/usr/bin/salt-ssh * test.ping": "salt-ssh: error: Brine has no salt-ssh: machines are managed by minions only",
		"salt-proxy --version":          "salt-proxy: error: Brine has no salt-proxy: ",
		"brine salt-cloud -p x y":       "salt-cloud: error: Brine has no salt-cloud: machines are not created",
		"brine ssh web test.ping":       "salt-ssh: error: Brine has no salt-ssh: ",
		"spm install x":                 "spm: error: Brine has no spm: ",
	} {
		env, stdout, stderr := testEnv()
		code := Main(t.Context(), env, Applets(), strings.Fields(argv))
		if code != frame.ExitUnavailable || stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: code %d, %q %q", argv, code, stdout, stderr)
		}
	}
	for name := range absent {
		if find(Applets(), name) != nil {
			t.Errorf("there is %s", name)
		}
	}
}

// Every program accepts the options that all have, and its declarations are valid.
func TestEveryApplet(t *testing.T) {
	for _, a := range Applets() {
		if a.Hidden {
			continue
		}
		t.Run(a.Name, func(t *testing.T) {
			if a.Summary == "" || strings.HasSuffix(a.Summary, ".") || strings.Contains(a.Summary, "\n") {
				t.Errorf("summary %q is not one line without a full stop", a.Summary)
			}
			env, stdout, _ := testEnv()
			if code := a.Run(t.Context(), env, []string{"--version"}); code != 0 || stdout.String() != frame.VersionLine(a.Name)+"\n" {
				t.Errorf("--version: code %d, %q", code, stdout)
			}
			env, stdout, _ = testEnv()
			if code := a.Run(t.Context(), env, []string{"--help"}); code != 0 || !strings.HasPrefix(stdout.String(), "Usage: "+a.Name+" ") {
				t.Errorf("--help: code %d, %q", code, stdout)
			}
			env, _, stderr := testEnv()
			code := a.Run(t.Context(), env, []string{"--nope"})
			want := "\n\n" + a.Name + ": error: no such option: --nope\n"
			if code != frame.ExitUsage || !strings.HasPrefix(stderr.String(), "Usage: "+a.Name+" ") || !strings.HasSuffix(stderr.String(), want) {
				t.Errorf("--nope: code %d, %q", code, stderr)
			}
		})
	}
}
