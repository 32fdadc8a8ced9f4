package durable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/test/eventually"
)

// tree is a directory whose files highstates change between two versions.
type tree struct {
	t      *testing.T
	dir    string
	config string
	files  []string // in the order of the run
}

// versions differ in size, so that the size shows which one a file has.
var versions = [2]string{"old", "younger"}

const managedFiles = 12

func newTree(t *testing.T) *tree {
	t.Helper()
	s := &tree{t: t, dir: t.TempDir()}
	s.config = filepath.Join(s.dir, "etc")
	s.write("etc/minion", fmt.Sprintf("id: m\nfile_client: local\nroot_dir: %s\nfile_roots: {base: [%s]}\nfile_ignore_glob: []\n", s.dir,
		filepath.Join(s.dir, "srv")))
	for _, v := range versions {
		s.write("srv/big_"+v, s.big(v))
		for i := range 5 {
			s.write(fmt.Sprintf("srv/tree_%s/%d", v, i), s.big(v))
		}
	}
	for i := range managedFiles {
		s.files = append(s.files, fmt.Sprintf("w/managed%d", i))
	}
	for i := range 5 {
		s.files = append(s.files, fmt.Sprintf("w/tree/%d", i))
	}
	s.files = append(s.files, "w/replaced", "w/block", "w/data", "w/copy", "w/option")
	return s
}

func (s *tree) path(name string) string { return filepath.Join(s.dir, name) }

func (s *tree) write(name, text string) {
	s.t.Helper()
	err := os.MkdirAll(filepath.Dir(s.path(name)), 0o755)
	if err == nil {
		err = os.WriteFile(s.path(name), []byte(text), 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// big returns content that takes a while to write.
func (s *tree) big(version string) string { return strings.Repeat(version+"\n", 40_000) }

const filler = 20_000

// want is what a file holds in a version.
func (s *tree) want(name, v string) string {
	head, tail := strings.Repeat("before\n", filler), strings.Repeat("after\n", filler)
	switch name {
	case "w/replaced":
		return head + "word=" + v + "\n" + tail
	case "w/block":
		return head + "#-- begin\n" + v + "\n#-- end\n" + tail
	case "w/data":
		return `{"text": "` + strings.Repeat(v, filler) + "\"}\n"
	case "w/option":
		return "[main]\nkey = " + v + "\n\n[rest]\nlong = " + strings.Repeat("x", 100_000) + "\n"
	}
	return s.big(v)
}

// mode returns the mode of the files whose mode changes with the content.
func mode(v string) os.FileMode {
	if v == versions[0] {
		return 0o600
	}
	return 0o640
}

// sls writes the states of a version.
func (s *tree) sls(v string) {
	var b strings.Builder
	for i := range managedFiles {
		fmt.Fprintf(&b, "%s:\n  file.managed: [{source: 'salt://big_%s'}, {mode: '%#o'}]\n", s.path(fmt.Sprintf("w/managed%d", i)), v, mode(v))
	}
	fmt.Fprintf(&b, "%s:\n  file.recurse: [{source: 'salt://tree_%s'}, {file_mode: '%#o'}]\n", s.path("w/tree"), v, mode(v))
	fmt.Fprintf(&b, "%s:\n  file.replace: [{pattern: 'word=.*'}, {repl: 'word=%s'}, {backup: false}, {show_changes: false}]\n", s.path("w/replaced"), v)
	fmt.Fprintf(&b, "%s:\n  file.blockreplace: [{marker_start: '#-- begin'}, {marker_end: '#-- end'}, {content: %s}, {backup: false}, "+
		"{show_changes: false}]\n", s.path("w/block"), v)
	fmt.Fprintf(&b, "%s:\n  file.serialize: [{dataset: {text: %s}}, {serializer: json}, {mode: '0600'}, {show_changes: false}, {serializer_opts: "+
		"[{indent: null}]}]\n", s.path("w/data"), strings.Repeat(v, filler))
	fmt.Fprintf(&b, "%s:\n  file.copy: [{source: %s}, {force: true}]\n", s.path("w/copy"), s.path("srv/big_"+v))
	fmt.Fprintf(&b, "%s:\n  ini.options_present: [{sections: {main: {key: %s}}}]\n", s.path("w/option"), v)
	s.write("srv/v.sls", b.String())
}

// start begins a highstate of a version. ended gets its result, also when kill ends it.
func (s *tree) start(v string) (kill func(), ended <-chan error) {
	s.t.Helper()
	s.sls(v)
	cmd := brine.Command(s.t.Context(), s.t, "salt-call", "--local", "--config-dir", s.config, "--retcode-passthrough", "state.apply", "v")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out.String())
		}
		done <- err
	}()
	return func() { cmd.Process.Kill() }, done
}

// has returns the version of a file; anything else is an error.
func (s *tree) has(name string) (string, error) {
	b, err := os.ReadFile(s.path(name))
	if err != nil {
		return "", err
	}
	for _, v := range versions {
		if string(b) != s.want(name, v) {
			continue
		}
		st, err := os.Stat(s.path(name))
		if err == nil && (strings.HasPrefix(name, "w/managed") || strings.HasPrefix(name, "w/tree")) && st.Mode().Perm() != mode(v) {
			err = fmt.Errorf("%s is the %s one, with the mode %v", name, v, st.Mode())
		}
		return v, err
	}
	return "", fmt.Errorf("%s is of neither version: %d bytes, %.60q", name, len(b), b)
}

// TestKilledHighstate kills highstates as soon as one of their files has changed: each managed file
// has complete content of one version, with the matching mode.
func TestKilledHighstate(t *testing.T) {
	t.Parallel()
	s := newTree(t)
	for _, name := range []string{"w/replaced", "w/block", "w/data", "w/option"} {
		s.write(name, s.want(name, versions[0]))
	}
	_, ended := s.start(versions[0])
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	cut := 0
	for i := range s.files {
		v := versions[(i+1)%2]
		name := s.files[(i*7)%len(s.files)]
		kill, ended := s.start(v)
		size := int64(len(s.want(name, v)))
		eventually.Nil(t, waitLimit, name+" changes", func() error {
			if st, err := os.Stat(s.path(name)); err == nil && st.Size() == size {
				return nil
			}
			return errNotYet
		})
		time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Millisecond)))) // somewhere within the next file
		kill()
		<-ended
		fresh := 0
		for _, f := range s.files {
			got, err := s.has(f)
			if err != nil {
				t.Fatalf("killed after %s: %v", name, err)
			}
			if got == v {
				fresh++
			}
		}
		if fresh < len(s.files) {
			cut++
		}
	}
	if cut == 0 {
		t.Error("no highstate was cut short: the test shows nothing")
	}
	t.Logf("%d of %d highstates were cut short", cut, len(s.files))
	for _, v := range versions { // the next run repairs everything
		_, ended := s.start(v)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		for _, f := range s.files {
			if got, err := s.has(f); err != nil || got != v {
				t.Errorf("%s is %q, want %q: %v", f, got, v, err)
			}
		}
	}
}
