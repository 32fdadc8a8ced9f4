// Package packages_test builds the packages and checks their contents.
package packages_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"brine/internal/base/salt"
	"brine/test/tools"
)

// packages are the names of the packages, the one of the program first.
var packages = []string{"brine", "brine-hub", "brine-salt-common", "brine-salt-master", "brine-salt-minion", "brine-salt-api", "brine-salt-syndic",
	"brine-python"}

// pam is the package that is built only where there is a C compiler, and for systems with the GNU
// C library.
const pam = "brine-pam"

// built are the names of the packages of a format that this machine builds.
func built(format string) []string {
	if format == "apk" || tools.Find("cc") == "" {
		return packages
	}
	return append(slices.Clone(packages), pam)
}

// file is the name of a package's file.
func file(format, name string) string {
	arch := runtime.GOARCH
	if name != "brine" && name != "brine-hub" && name != pam {
		arch = map[string]string{"deb": "all", "rpm": "noarch", "apk": "all"}[format]
	} else if format != "deb" {
		arch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
	}
	switch format {
	case "deb":
		return fmt.Sprintf("%s_%s_%s.deb", name, salt.BrineVersion, arch)
	case "rpm":
		return fmt.Sprintf("%s-%s-1.%s.rpm", name, salt.BrineVersion, arch)
	}
	return fmt.Sprintf("%s_%s_%s.apk", name, salt.BrineVersion, arch)
}

// artefacts is the number of files that TestPackages has built.
var artefacts = len(built("deb")) + len(built("rpm")) + len(built("apk")) + len([]string{"archive", "SBOM", "SHA256SUMS", "signature"})

// build builds the packages of this machine's architecture into a new directory.
func build(t *testing.T, formats string) string {
	t.Helper()
	dir := t.TempDir()
	script(t, "build", dir, formats)
	return dir
}

// script runs a script of packaging. It skips the test where the modules of the builder
// cannot be fetched.
func script(t *testing.T, name, dir, formats string, env ...string) {
	t.Helper()
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("there are no packages for " + runtime.GOARCH)
	}
	cmd := exec.CommandContext(t.Context(), "../../packaging/"+name, dir)
	cmd.Env = append(append(os.Environ(), "ARCHES="+runtime.GOARCH, "FORMATS="+formats, "BRINE_SIGN_KEY="), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		if bytes.Contains(out, []byte("cmd/nfpm@")) || bytes.Contains(out, []byte("cmd/cyclonedx-gomod@")) { // go's error names them
			t.Skip("a builder of packages cannot be fetched: " + string(out))
		}
		t.Fatalf("packaging/%s: %v\n%s", name, err, out)
	}
}

// TestPackages: a release has each format with the program and the services, and another
// one, in another directory, has the same files. The sums are signed.
func TestPackages(t *testing.T) {
	tools.Slow(t)
	gpg := tools.Need(t, "gnupg", "gpg")
	home := t.TempDir()
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GNUPGHOME", home)
	defer func() { _ = exec.Command("gpgconf", "--kill", "all").Run() }()
	run(t, gpg, "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", "release@example.com", "ed25519", "sign")
	key := filepath.Join(home, "key")
	if err := os.WriteFile(key, run(t, gpg, "--batch", "--armor", "--export-secret-keys"), 0o600); err != nil {
		t.Fatal(err)
	}

	const formats = "deb rpm apk tar sbom"
	first, second := t.TempDir(), t.TempDir()
	t.Run("builds", func(t *testing.T) {
		t.Run("first", func(t *testing.T) {
			t.Parallel()
			script(t, "release", first, formats, "BRINE_SIGN_KEY=release@example.com")
		})
		t.Run("second", func(t *testing.T) { t.Parallel(); script(t, "release", second, formats, "BRINE_SIGN_KEY="+key) })
	})
	if t.Failed() {
		return
	}
	entries, err := os.ReadDir(first)
	if err != nil || len(entries) != artefacts {
		t.Fatalf("%d files instead of %d, %v", len(entries), artefacts, err)
	}
	for _, e := range entries {
		if e.Name() != "SHA256SUMS.asc" && hash(t, filepath.Join(first, e.Name())) != hash(t, filepath.Join(second, e.Name())) {
			t.Errorf("two builds of %s differ", e.Name())
		}
	}
	for _, dir := range []string{first, second} {
		run(t, gpg, "--batch", "--verify", filepath.Join(dir, "SHA256SUMS.asc"), filepath.Join(dir, "SHA256SUMS"))
	}
	sums, err := os.ReadFile(filepath.Join(first, "SHA256SUMS"))
	if err != nil || bytes.Count(sums, []byte("\n")) != artefacts-2 {
		t.Errorf("SHA256SUMS: %v\n%s", err, sums)
	}
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if hash(t, filepath.Join(first, name)) != sum {
			t.Errorf("SHA256SUMS has another hash of %s", name)
		}
	}
	checkAll(t, first, "deb", debFiles)
	checkAll(t, first, "rpm", rpmFiles)
	checkAll(t, first, "apk", apkFiles)
	checkArchive(t, filepath.Join(first, fmt.Sprintf("brine-%s-linux-%s", salt.BrineVersion, runtime.GOARCH)))
}

// checkArchive checks the archive and the SBOM of a release, whose paths begin with base.
func checkArchive(t *testing.T, base string) {
	t.Helper()
	f, err := os.Open(base + ".tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files, top := untar(t, z), "/"+filepath.Base(base)
	if files[top+"/bin/salt-minion"].link != "brine" || !bytes.Contains(files[top+"/systemd/salt-minion.service"].text, []byte("/usr/local/bin/salt-minion")) ||
		files[top+"/bin/brine"].mode != 0o755 {
		t.Errorf("archive: %v", slices.Sorted(maps.Keys(files)))
	}
	text, err := os.ReadFile(base + ".cdx.json")
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		Format   string `json:"bomFormat"`
		Metadata struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	c := bom.Metadata.Component
	if bom.Format != "CycloneDX" || c.Name != "brine" || c.Version != "v"+salt.BrineVersion || len(bom.Components) < 20 {
		t.Errorf("SBOM of %s %s with %d modules", c.Name, c.Version, len(bom.Components))
	}
}

// TestVersionOfChanges: the newest section of CHANGELOG.md is that of the version.
func TestVersionOfChanges(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n## ")
	if first, _, _ := strings.Cut(after, "\n"); !strings.HasPrefix(first, salt.BrineVersion+" ") {
		t.Errorf("CHANGELOG.md begins with %q, and the version is %s", first, salt.BrineVersion)
	}
}

func hash(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

// entry is a file in a package.
type entry struct {
	mode int64
	link string
	text []byte // nil if it was not read
	dir  bool
}

// checkAll checks the packages of a format. read returns the files of one.
func checkAll(t *testing.T, dir, format string, read func(t *testing.T, path string) map[string]entry) {
	units, logrotate := "/usr/lib/systemd/system/", "/etc/logrotate.d/salt"
	if format == "deb" {
		units, logrotate = "/lib/systemd/system/", "/etc/logrotate.d/salt-common"
	}
	services := map[string]string{"/etc/init.d/salt-": ""}
	if format != "apk" {
		services = map[string]string{units + "salt-": ".service"}
	}
	all := map[string]string{}
	for _, name := range built(format) {
		files := read(t, filepath.Join(dir, file(format, name)))
		for path := range files {
			if other := all[path]; other != "" && !files[path].dir {
				t.Errorf("%s: %s is in %s and in %s", format, path, other, name)
			}
			all[path] = name
		}
		want := []string{"/usr/share/brine/manifest/" + name, "/usr/share/doc/" + name + "/copyright"}
		switch name {
		case "brine":
			want = append(want, "/usr/bin/brine", "/usr/share/doc/brine/NOTICES", "/usr/share/man/man8/salt-master.8.gz", "/usr/share/man/man1/brine-ha.1.gz",
				"/usr/share/bash-completion/completions/salt", "/usr/share/fish/vendor_completions.d/salt.fish", units+"brine-witness.service",
				"/usr/share/brine/samples/master", "/usr/share/brine/samples/minion", "/usr/share/brine/samples/witness")
			for _, p := range []string{"salt", "salt-master", "salt-minion", "salt-key", "salt-call", "salt-run", "salt-cp", "salt-api", "salt-syndic"} {
				if files["/usr/bin/"+p].link != "brine" {
					t.Errorf("%s: /usr/bin/%s is no link to brine: %q", format, p, files["/usr/bin/"+p].link)
				}
			}
			if format != "rpm" {
				checkTexts(t, files)
			}
		case "brine-hub":
			unit := units + "brine-hub.service"
			if format == "apk" {
				unit = "/etc/init.d/brine-hub"
			}
			want = append(want, "/usr/bin/brine-hub", "/usr/share/doc/brine-hub/NOTICES", "/usr/share/man/man8/brine-hub.8.gz",
				"/usr/share/brine/samples/hub", unit)
			if format != "rpm" && !bytes.Contains(files["/usr/share/doc/brine-hub/NOTICES"].text, []byte("==== github.com/nats-io/nats-server/v2 ")) {
				t.Errorf("%s: the licence of the NATS server is missing", format)
			}
		case pam:
			want = append(want, "/usr/lib/brine/brine-pam", "/usr/share/doc/brine-pam/NOTICES")
			if mode := files["/usr/lib/brine/brine-pam"].mode & 0o7777; mode != 0o4754 {
				t.Errorf("%s: brine-pam has mode %o", format, mode)
			}
		case "brine-python":
			want = append(want, "/usr/share/brine/python/salt/client/__init__.py", "/usr/share/brine/python/brine_host.py")
			if format == "deb" {
				want = append(want, "/usr/lib/python3/dist-packages/brine-salt.pth")
			}
		case "brine-salt-common":
			want = append(want, logrotate, "/usr/lib/tmpfiles.d/brine-salt.conf", "/etc/salt/master.d", "/etc/salt/minion.d", "/var/log/salt", "/var/cache/salt")
		default:
			for prefix, suffix := range services {
				want = append(want, prefix+strings.TrimPrefix(name, "brine-salt-")+suffix)
			}
		}
		for _, path := range want {
			if _, ok := files[path]; !ok {
				t.Errorf("%s: %s has no %s:\n%s", format, name, path, strings.Join(slices.Sorted(maps.Keys(files)), "\n"))
			}
		}
		for path, e := range files {
			unit := strings.HasSuffix(path, ".service") && e.text != nil
			if unit && (bytes.Contains(e.text, []byte("/usr/local")) || !bytes.Contains(e.text, []byte("ExecStart=/usr/bin/"))) {
				t.Errorf("%s: %s starts no program of the package:\n%s", format, path, e.text)
			}
		}
		if format != "rpm" {
			checkManifest(t, name, files)
		}
	}
}

// checkTexts checks what the package of the program says.
func checkTexts(t *testing.T, files map[string]entry) {
	t.Helper()
	notices := string(files["/usr/share/doc/brine/NOTICES"].text)
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	direct, _, _ := strings.Cut(string(mod), ")")
	// In tests, or in brine-hub alone, which has notices of its own.
	others := regexp.MustCompile(`nats-server|proto/otlp|gofakes3|porcupine|go-internal|golang.org/x/tools|honnef.co`)
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) (v\S+)$`).FindAllStringSubmatch(direct, -1) {
		if !strings.Contains(notices, "==== "+m[1]+" "+m[2]+": ") && !others.MatchString(m[1]) {
			t.Errorf("NOTICES have no licence of %s %s", m[1], m[2])
		}
	}
	if !strings.Contains(notices, "Copyright 2009 The Go Authors") {
		t.Error("NOTICES have no licence of Go")
	}
	if s := string(files["/usr/share/brine/samples/minion"].text); !strings.Contains(s, "\n#master: salt\n") {
		t.Errorf("the sample of minions sets no master:\n%.500s", s)
	}
}

// checkManifest: the manifest of a package has the hash of each of its files but those of
// the administrator.
func checkManifest(t *testing.T, name string, files map[string]entry) {
	t.Helper()
	listed := map[string]bool{}
	for line := range strings.Lines(string(files["/usr/share/brine/manifest/"+name].text)) {
		f := strings.Fields(line)
		if len(f) != 4 {
			t.Fatalf("%s: manifest has %q", name, line)
		}
		listed[f[3]] = true
		e := files[f[3]]
		switch {
		case f[0] == "link" && e.link != f[2]:
			t.Errorf("%s: %s leads to %q: %s", name, f[3], e.link, line)
		case f[0] == "file" && (fmt.Sprintf("%x", sha256.Sum256(e.text)) != f[2] || fmt.Sprintf("%o", e.mode&0o7777) != f[1]):
			t.Errorf("%s: %s (mode %o) is not what the manifest says: %s", name, f[3], e.mode, line)
		}
	}
	for path, e := range files {
		if !e.dir && !listed[path] && !strings.HasPrefix(path, "/etc/") && !strings.HasPrefix(path, "/usr/share/brine/manifest") {
			t.Errorf("%s: the manifest has no %s", name, path)
		}
	}
}

// run returns what a program prints.
func run(t *testing.T, program string, args ...string) []byte {
	t.Helper()
	var faults bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stderr = &faults
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, faults.Bytes())
	}
	return out
}

// debFiles reads a deb by dpkg-deb, and checks its relations.
func debFiles(t *testing.T, path string) map[string]entry {
	t.Helper()
	dpkg := tools.Need(t, "dpkg", "dpkg-deb")
	fields := map[string]string{}
	for line := range strings.Lines(string(run(t, dpkg, "-f", path))) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			fields[k] = v
		}
	}
	if fields["Version"] != salt.BrineVersion {
		t.Errorf("%s has version %s", path, fields["Version"])
	}
	if fields["Package"] == pam {
		needs := regexp.MustCompile(`^libc6 \(>= 2\.[0-9]+\), libpam0g \(>= 1\.1\), passwd$`)
		if fields["Architecture"] != runtime.GOARCH || !needs.MatchString(fields["Depends"]) {
			t.Errorf("%s is for %s and depends on %q", path, fields["Architecture"], fields["Depends"])
		}
	} else if fields["Package"] == "brine-python" {
		if fields["Architecture"] != "all" || fields["Depends"] != "brine (= "+salt.BrineVersion+")" || fields["Recommends"] != "python3" {
			t.Errorf("%s is for %s, depends on %q and recommends %q", path, fields["Architecture"], fields["Depends"], fields["Recommends"])
		}
	} else if name, service := strings.CutPrefix(fields["Package"], "brine-"); service && name != "hub" {
		for _, relation := range []string{"Provides", "Conflicts", "Replaces"} {
			if fields[relation] != name {
				t.Errorf("%s: %s is %q", path, relation, fields[relation])
			}
		}
		depends := "brine-salt-common (= " + salt.BrineVersion + ")"
		if name == "salt-common" {
			depends = "brine (= " + salt.BrineVersion + ")"
		}
		if fields["Depends"] != depends {
			t.Errorf("%s depends on %q", path, fields["Depends"])
		}
	} else if fields["Architecture"] != runtime.GOARCH || fields["Depends"] != "" {
		t.Errorf("%s is for %s and depends on %q", path, fields["Architecture"], fields["Depends"])
	}
	conf := string(run(t, dpkg, "-I", path))
	if strings.Contains(filepath.Base(path), "common") {
		conf = string(run(t, dpkg, "-I", path, "conffiles"))
		if strings.TrimSpace(conf) != "/etc/logrotate.d/salt-common" {
			t.Errorf("conffiles of %s: %s", path, conf)
		}
	} else if strings.Contains(conf, "conffiles") {
		t.Errorf("%s has conffiles:\n%s", path, conf)
	}
	return untar(t, bytes.NewReader(run(t, dpkg, "--fsys-tarfile", path)))
}

// apkFiles reads an apk, which is a tar in streams of gzip, and checks its relations.
func apkFiles(t *testing.T, path string) map[string]entry {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	files := untar(t, z)
	info := string(files["/.PKGINFO"].text)
	for path := range files {
		if strings.HasPrefix(path, "/.") {
			delete(files, path)
		}
	}
	name := regexp.MustCompile(`(?m)^pkgname = (.*)$`).FindStringSubmatch(info)
	if name == nil || !strings.Contains(info, "pkgver = "+salt.BrineVersion) {
		t.Fatalf("%s: %s", path, info)
	}
	want := map[string]string{"brine": "replaces = salt-minion", "brine-salt-common": "depend = brine=" + salt.BrineVersion,
		"brine-python": "depend = python3"}[name[1]]
	if name[1] == "brine-hub" {
		want = "arch = "
	} else if want == "" {
		want = "provides = " + strings.TrimPrefix(name[1], "brine-")
	}
	if !strings.Contains(info, want) {
		t.Errorf("%s has no %q:\n%s", path, want, info)
	}
	return files
}

// untar returns the files of an archive, with absolute names.
func untar(t *testing.T, r io.Reader) map[string]entry {
	t.Helper()
	files := map[string]entry{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		e := entry{mode: h.Mode, link: h.Linkname, dir: h.Typeflag == tar.TypeDir}
		if h.Typeflag == tar.TypeReg {
			if e.text, err = io.ReadAll(tr); err != nil {
				t.Fatal(err)
			}
			e.text = append([]byte{}, e.text...)
		}
		if h.Uname != "root" && h.Uname != "" || h.Uid != 0 {
			t.Errorf("%s belongs to %s (%d)", h.Name, h.Uname, h.Uid)
		}
		files["/"+strings.Trim(strings.TrimPrefix(h.Name, "./"), "/")] = e
	}
}
