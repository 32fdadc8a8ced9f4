package ha

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/cli/frame"
)

// TestWithoutMasterFile checks that a master with only defaults, or only options in master.d, needs
// no main file; any other directory without one is an error.
func TestWithoutMasterFile(t *testing.T) {
	usual, included, wrong := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{usual, included} {
		if err := os.Mkdir(filepath.Join(dir, "master.d"), 0o755); err != nil {
			t.Fatal(err)
		}
		text := "root_dir: " + dir + "\nid: boss\nfile_roots: {base: [" + dir + "]}\npillar_roots: {base: [" + dir + "]}\n"
		if err := os.WriteFile(filepath.Join(dir, "master.d", "a.conf"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-c", usual, "report"}, frame.ExitOK, `"master": "boss"`},
		{[]string{"-c", usual, "report", usual}, frame.ExitOK, `"master": "boss"`},
		{[]string{"-c", wrong, "report", included}, frame.ExitOK, `"master": "boss"`},
		{[]string{"-c", usual, "doctor", usual, included}, frame.ExitFailure, "Masters: boss ("},
		{[]string{"-c", usual, "report", wrong}, frame.ExitFailure, "contains no master configuration"},
		{[]string{"-c", usual, "doctor", usual, wrong}, frame.ExitNoReturn, "contains no master configuration"},
		{[]string{"-c", usual, "report", filepath.Join(wrong, "none")}, frame.ExitFailure, "contains no master configuration"},
	} {
		var out bytes.Buffer
		env := &frame.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" },
			IsTerminal: func(any) bool { return false }}
		if code := run(t.Context(), env, c.args); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%v: code %d, %s", c.args, code, &out)
		}
	}
	// Only default options.
	for dir, want := range map[string]bool{usual: true, included: true, wrong: false} {
		if got := onlyDefaults(filepath.Join(dir, "master"), usual); got != want {
			t.Errorf("%s: %v", dir, got)
		}
	}
	bare := t.TempDir()
	if !onlyDefaults(filepath.Join(bare, "master"), bare) {
		t.Error("the default directory without files is refused")
	}
}
