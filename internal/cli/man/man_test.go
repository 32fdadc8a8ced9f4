package man

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/cli/frame"
	"brine/internal/cli/key"
	"brine/test/tools"
)

type odd struct {
	frame.Config
	Odd bool   `flag:"-o --odd-one --alias" doc:".begins with a dot. Has a \\ and 'quotes'. -x"`
	Arg string `flag:"--arg" arg:"A-B" choices:"one,two" group:"More Options" doc:"Which."`
	Not bool   `flag:"--not" hidden:"y" doc:"Hidden."`
}

func applets() []frame.Applet {
	c := frame.Command{Name: "salt-odd", Usage: "[options] 'x' .y", Doc: "Does this. And that."}
	return []frame.Applet{key.Applet(), {Name: "salt-odd", Summary: "do odd things", Run: func(_ context.Context, env *frame.Env, args []string) int {
		_, code, _ := c.Parse(env, &odd{}, args)
		return code
	}}}
}

func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	env := &frame.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" },
		IsTerminal: func(any) bool { return false }}
	a := Applet(applets())
	code = a.Run(t.Context(), env, args)
	return code, out.String(), errs.String()
}

func TestPage(t *testing.T) {
	code, page, stderr := run(t, "odd")
	if code != 0 || stderr != "" {
		t.Fatal(code, stderr)
	}
	for _, want := range []string{
		".TH \"SALT\\-ODD\" 1 ", ".SH NAME\nsalt\\-odd \\- do odd things\n", ".B salt\\-odd\n[options] \\(aqx\\(aq .y\n", "Does this.\nAnd that.\n",
		".TP\n\\fB\\-o\\fR, \\fB\\-\\-odd\\-one\\fR, \\fB\\-\\-alias\\fR\n\\&.begins with a dot.\nHas a \\e and \\(aqquotes\\(aq.\n\\-x\n",
		".SH \"MORE OPTIONS\"\n.TP\n\\fB\\-\\-arg\\fR=\\fIA\\-B\\fR\nWhich.\nOne of one, two.\n", "$SALT_CONFIG_DIR", ".BR salt\\-key (1)\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if strings.Contains(page, "\\-\\-not") {
		t.Error("a hidden option is shown")
	}
	for _, args := range [][]string{nil, {"nosuch"}, {"a", "b"}} {
		if code, _, stderr := run(t, args...); code != 64 || !strings.Contains(stderr, "man: error: ") {
			t.Errorf("%v: %d, %s", args, code, stderr)
		}
	}
}

// TestReaders: programs that check manual pages report no errors.
func TestReaders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man")
	if code, _, stderr := run(t, "--dir", dir); code != 0 {
		t.Fatal(stderr)
	}
	pages, err := filepath.Glob(dir + "/*.1")
	if err != nil || len(pages) != 2 {
		t.Fatalf("pages: %v, %v", pages, err)
	}
	for _, tool := range [][]string{{"mandoc", "-Tlint", "-Wwarning"}, {"groff", "-man", "-ww", "-z"}} {
		tools.Need(t, tool[0], tool[0])
		for _, p := range pages {
			out, _ := exec.Command(tool[0], append(tool[1:], p)...).CombinedOutput()
			for l := range strings.Lines(string(out)) {
				if !strings.Contains(l, "missing date") { // pages do not depend on the date
					t.Errorf("%s: %s", tool[0], l)
				}
			}
		}
	}
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := run(t, "--dir", dir+"/file"); code != 1 || stderr == "" {
		t.Errorf("into a file: %d, %s", code, stderr)
	}
}
