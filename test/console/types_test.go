package console

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"brine/test/tools"
)

// typescript checks the pages, which are JavaScript with types in comments. It is fetched by npm, not
// part of the project.
const (
	typescript    = "typescript@5.9.3"
	typescriptSum = "10e108c9cf7d5f2879053dff18515fb405abf2ccef63eaaf017d9c571687a1d3"
)

// TestTypes: TypeScript finds no wrong name, call or type in the pages, and would find one.
func TestTypes(t *testing.T) {
	node := tools.Find("node")
	if node == "" {
		t.Skip("node, which runs TypeScript, is not installed")
	}
	archive := npmPack(t, typescript)
	if sum := sha256.Sum256(archive); hex.EncodeToString(sum[:]) != typescriptSum {
		t.Fatalf("%s is another file: %x", typescript, sum)
	}
	dir := t.TempDir()
	part := regexp.MustCompile(`^package/lib/(_?tsc\.js|lib\.[a-z0-9.]*d\.ts)$`)
	for name, text := range unpack(t, archive, part.MatchString) {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(files ...string) string {
		out, err := exec.CommandContext(t.Context(), node, append([]string{filepath.Join(dir, "tsc.js"), "--noEmit", "--allowJs", "--checkJs", "--target", "es2022",
			"--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2023,dom,dom.iterable"}, files...)...).CombinedOutput()
		if err != nil && len(out) == 0 {
			t.Fatal(err)
		}
		return string(out)
	}
	pages, err := filepath.Glob("../../internal/daemons/console/static/*.js")
	if err != nil || len(pages) < 20 {
		t.Fatalf("%v %v", pages, err)
	}
	if out := check(pages...); out != "" {
		t.Error(out)
	}
	wrong := filepath.Join(dir, "wrong.js")
	text := fmt.Sprintf("import { h } from %q;\nhh('p');\ndocument.nosuch(h);\n", absolute(t, "../../internal/daemons/console/static/dom.js"))
	if err := os.WriteFile(wrong, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := check(wrong); !strings.Contains(out, "wrong.js(2,1)") || !strings.Contains(out, "wrong.js(3,10)") {
		t.Errorf("mistakes are not found: %s", out)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
