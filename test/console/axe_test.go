package console

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/test/tools"
)

// axe is the accessibility checker axe-core, and the sum of its script. It is fetched by npm, not
// part of the project.
const (
	axe    = "axe-core@4.10.2"
	axeSum = "b511cd9dec01c76f4b2ad1723b66b6db37d4c2eb4ed199076e1829d9ee7b75e3"
)

// fetchAxe returns the script of axe-core.
func fetchAxe(t *testing.T) string {
	t.Helper()
	const script = "package/axe.min.js"
	b := unpack(t, npmPack(t, axe), func(name string) bool { return name == script })[script]
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != axeSum {
		t.Fatalf("%s is another file: %x", axe, sum)
	}
	return string(b)
}

// npmPack returns the archive of a package, which npm fetches. It skips the test where npm cannot.
func npmPack(t *testing.T, name string) []byte {
	t.Helper()
	npm := tools.Find("npm")
	if npm == "" {
		t.Skip("npm, which fetches " + name + ", is not installed")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // without a network npm tries for many minutes
	defer cancel()
	c := exec.CommandContext(ctx, npm, "pack", "--silent", "--fetch-retries=0", "--fetch-timeout=20000", name)
	c.WaitDelay = time.Second
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Skipf("npm cannot fetch %s: %v %.300s", name, err, out)
	}
	all, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	b, err := os.ReadFile(all[0])
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// unpack returns the wanted files of an archive of npm.
func unpack(t *testing.T, archive []byte, wanted func(name string) bool) map[string][]byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg || !wanted(h.Name) {
			continue
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAxe: axe-core finds no violation of WCAG 2.2 AA on any page, in both themes.
func TestAxe(t *testing.T) {
	script := fetchAxe(t)
	roots := t.TempDir()
	if err := os.Chmod(roots, 0o755); err != nil {
		t.Fatal(err)
	}
	sls := []byte("a: {test.succeed_with_changes: []}\nb: {test.fail_without_changes: []}\n")
	if err := os.WriteFile(filepath.Join(roots, "web.sls"), sls, 0o644); err != nil {
		t.Fatal(err)
	}
	s := start(t, "approval_above: 50\nfile_roots: {base: ["+roots+"]}\n", "alpha", "beta")
	check := func(what string) {
		t.Helper()
		var found []string
		s.Run(&found, script+`
			const r = await axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]});
			return r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.html.slice(0, 200)));`)
		for _, f := range found {
			t.Errorf("%s: %s", what, f)
		}
	}
	check("sign-in")
	s.enter()
	s.page("#/run?tgt=*&fun=state.apply")
	s.set("#args", "web")
	s.click("#start")
	s.sees("2 of 2 minions returned")
	s.click("#matrix summary")
	job := s.text("location.hash")
	var pages []string
	s.json(&pages, `[...document.querySelectorAll("nav a")].map((a) => a.getAttribute("href"))`)
	for _, scheme := range []string{"light", "dark"} {
		s.Scheme(scheme)
		s.until("the theme is "+scheme, `document.documentElement.dataset.theme === args[0]`, scheme)
		for _, p := range append(pages, "#/minions/alpha", "#/history/alpha", job, "#/run?fun=state.apply") {
			s.page(p)
			s.until("the page is there", `document.querySelector("main h1") && location.hash === args[0]`, p)
			if strings.HasPrefix(p, "#/jobs/") {
				s.click("#matrix summary")
			}
			if p == "#/schedules" {
				s.click("#s-new")
			}
			if strings.HasPrefix(p, "#/history") {
				s.until("the runs are there", `document.querySelector("#list td")`)
			}
			check(scheme + " " + p)
		}
		s.click("#help")
		check(scheme + " help")
		s.Type("Escape")
		s.click("#go")
		check(scheme + " palette")
		s.Type("Escape")
	}
}
