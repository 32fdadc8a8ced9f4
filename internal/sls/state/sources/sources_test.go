package sources

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/files/fileclient"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
)

// TestFirstThere uses names one of which is a prefix of another: a master lists
// files by prefix, but a directory only exists if there are files in it.
func TestFirstThere(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.conf.jinja": "x", "tree/file": "y"} {
		path := filepath.Join(dir, "roots", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	quiet := slog.New(slog.DiscardHandler)
	srv := fileserver.New(fileserver.Options{
		FileRoots: value.DictOf("base", value.ListOf(filepath.Join(dir, "roots"))), Backends: []string{"roots"}, IgnoreRegex: value.ListOf(),
		IgnoreGlob: value.ListOf(),
	}, fileserver.Config{CacheDir: filepath.Join(dir, "cache"), HashType: "sha256"}, quiet)
	files := fileclient.New(srv, fileclient.Options{CacheDir: filepath.Join(dir, "minion"), HashType: "sha256"}, quiet)
	for _, c := range []struct {
		names []any
		want  string
	}{
		{[]any{"salt://a.conf", "salt://a.conf.jinja"}, "salt://a.conf.jinja"},
		{[]any{"salt://none", "salt://tree", "salt://a.conf.jinja"}, "salt://tree"},
		{[]any{"salt://tre", "salt://a"}, ""},
	} {
		all, err := Read(value.ListOf(c.names...), "", "base")
		if err != nil {
			t.Fatal(err)
		}
		got, err := FirstThere(t.Context(), files, all)
		if got.URL != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%v: got %q, %v", c.names, got.URL, err)
		}
	}
}

// TestFindHash parses files of hashes in the formats of md5sum, BSD and Debian.
func TestFindHash(t *testing.T) {
	const md5a, md5b, sha = "0cc175b9c0f1b6a831c399e269772661", "92EB5FFEE6AE2FEC3AD71C777531578F", "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8"
	text := "x" + md5a + " a\n" + md5a + "  other\n" + md5b + " *dir/a b\n MD5 (c.gz) = " + md5b + "\n" + sha + " 12 d.gz.sig\n" + sha + " 12 d.gz\n"
	for _, c := range []struct{ kind, url, name, hashName, want string }{
		{"", "", "/x/other", "", md5a}, {"md5", "", "/x/a b", "", md5b}, {"", "http://h/c.gz", "/x/y", "", md5b}, {"", "http://h/c.gz", "/x/other", "", md5a},
		{"", "http://h/c.gz", "/x/other", "d.gz", sha}, {"sha1", "", "/x/other", "", sha}, {"sha512", "", "/x/other", "", ""},
		{"what", "", "/x/none", "", md5a},
	} {
		got, ok := FindHash(text, c.kind, c.url, How{Name: c.name, HashName: c.hashName})
		if got.Sum != c.want || ok != (c.want != "") {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}
