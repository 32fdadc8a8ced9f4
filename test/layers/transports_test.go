package layers

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// byName matches a decision by the name of a transport.
var byName = regexp.MustCompile(`(?:Name\(\)|[tT]ransport)\s*[!=]=\s*"(?:zeromq|tcp|ws)"`)

// TestTransportsByTraits: differences between transports are traits, so that a new transport needs
// no change outside of internal/net/transport.
func TestTransportsByTraits(t *testing.T) {
	for line, want := range map[string]bool{
		`if l.Transport.Name() == "tcp" && x {`: true, `cfg.Network.Transport != "zeromq"`: true, `Transport: "tcp",`: false, `o.IPCMode == "tcp"`: false,
	} {
		if byName.MatchString(line) != want {
			t.Fatalf("%s: %v", line, !want)
		}
	}
	root, files := filepath.Join("..", "..", "internal"), 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path == filepath.Join(root, "net", "transport") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		for i, line := range strings.Split(string(text), "\n") {
			if byName.MatchString(line) {
				t.Errorf("%s:%d decides by the name of a transport: use its Traits", path, i+1)
			}
		}
		return err
	})
	if err != nil || files < 500 {
		t.Fatalf("%d files, %v", files, err)
	}
}
