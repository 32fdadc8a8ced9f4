package fuzztest

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// FuzzSample fails, only in the runs below, for inputs that mutation finds at once.
func FuzzSample(tf *testing.F) {
	f := Wrap(tf)
	f.Add([]byte("abc"), 1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if os.Getenv("BRINE_FUZZ_SAMPLE") == "fails" && len(b) > 4 {
			t.Fatal("found")
		}
	})
}

func child(t *testing.T, dir string, env ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, "-test.run", "^FuzzSample$")
	c.Dir = dir
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	return string(out), err
}

func TestCount(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	if out, err := child(t, dir, "BRINE_FUZZ_COUNT=100ms", "BRINE_FUZZ_LOG="+log); err != nil {
		t.Fatal(err, out)
	}
	b, err := os.ReadFile(log)
	f := strings.Fields(string(b))
	if err != nil || len(f) < 4 || f[0] != "brine/test/fuzztest" || f[1] != "FuzzSample" || f[2] == "0" || f[3] != "executions" {
		t.Fatalf("%q, %v", b, err)
	}
}

// TestFailingInputIsSaved: a failing input is saved, so that an ordinary run fails with it.
func TestFailingInputIsSaved(t *testing.T) {
	dir := t.TempDir()
	if out, err := child(t, dir, "BRINE_FUZZ_COUNT=1m", "BRINE_FUZZ_SAMPLE=fails"); err == nil {
		t.Fatal("nothing found", out)
	}
	saved, _ := filepath.Glob(filepath.Join(dir, "testdata/fuzz/FuzzSample/*"))
	if len(saved) != 1 {
		t.Fatal(saved)
	}
	if out, err := child(t, dir, "BRINE_FUZZ_COUNT=", "BRINE_FUZZ_SAMPLE=fails"); err == nil || !strings.Contains(out, filepath.Base(saved[0])) {
		t.Fatal(err, out)
	}
}

func TestCorpusFormat(t *testing.T) {
	for _, args := range [][]any{{[]byte("a\n\x00\xff\"")}, {"", "ä\xff`", true, 5, uint8(3), int64(-4), uint64(7), uint16(9)}} {
		got, err := unmarshal(marshal(args))
		if err != nil || !reflect.DeepEqual(got, args) {
			t.Errorf("%q became %q, %v", args, got, err)
		}
	}
	got, err := unmarshal([]byte(header + "\nbyte('\\x05')\nbyte('\\'')\nuint8(7)\nstring(\"x\")\n"))
	if err != nil || !reflect.DeepEqual(got, []any{uint8(5), uint8('\''), uint8(7), "x"}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "go test fuzz v2\n", header + "\nfunc(1)", header + "\n[]byte(1)", header + "\nint(x)"} {
		if got, err := unmarshal([]byte(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

func TestPackageOf(t *testing.T) {
	for in, want := range map[string]string{"brine/internal/x.FuzzY": "brine/internal/x", "brine/internal/x_test.FuzzY": "brine/internal/x"} {
		if got := packageOf(in); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

// TestMutations: mutations keep the types, do not modify the seeds, and are bounded.
func TestMutations(t *testing.T) {
	seeds := [][]any{{[]byte("hello"), "x", 3, true, uint8(1)}, {[]byte{}, "", -1, false, uint8(0)}}
	m := newMutator(1, seeds)
	different := map[string]bool{}
	for range 20000 {
		args := m.next()
		for i, a := range args {
			if reflect.TypeOf(a) != reflect.TypeOf(seeds[0][i]) {
				t.Fatalf("%T", a)
			}
		}
		if size(args) > 3*MaxInput {
			t.Fatal(size(args))
		}
		different[string(marshal(args))] = true
	}
	if len(different) < 10000 || !bytes.Equal(seeds[0][0].([]byte), []byte("hello")) {
		t.Errorf("%d inputs of %q", len(different), seeds[0])
	}
}

// TestTargetsAreWrapped: every target is run by make fuzz-count.
func TestTargetsAreWrapped(t *testing.T) {
	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(.*\n(.*)`)
	n := 0
	for _, root := range []string{"../../internal", "../../test"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			src, err := os.ReadFile(path)
			for _, m := range target.FindAllStringSubmatch(string(src), -1) {
				n++
				if !strings.Contains(m[2], "Wrap(tf)") {
					t.Errorf("%s: %s does not begin with fuzztest.Wrap", path, m[1])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 50 {
		t.Errorf("only %d targets are found", n)
	}
}
