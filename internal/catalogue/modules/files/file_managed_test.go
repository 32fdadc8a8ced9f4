package files

import (
	"context"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/call/fn/fntest"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/files/fileclient"
	"brine/internal/files/fileserver"
	"brine/internal/host"
	"brine/internal/py/value"
)

const fileSignatures = "testdata/file-signatures.json"

func TestFileSignatures(t *testing.T) {
	stocktest.Signatures(t, fileSignatures, []fn.Module{fileModule(&host.Machine{})}, map[string]string{})
}

func TestFileSignaturesAreTrue(t *testing.T) { stocktest.Verify(t, fileSignatures) }

const md5a, sha1a, sha256a = "0cc175b9c0f1b6a831c399e269772661", "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8",
	"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"

// growManaged creates the files that managedJobs use.
func growManaged(t *testing.T, root string) {
	t.Helper()
	for name, text := range map[string]string{
		"a": "a", "old": "old\n", "owned": "a", "sed": "x=1\ny=1\nx='1'/\n", "roots/s": "salt\n", "roots/t": "{{ who }} is {{ name }}\n", "wrong": "a",
		"sums":  "# sums\n" + md5a + "  other\n" + sha1a + " *some/a\nSHA256 (a b) = " + sha256a + "\n" + strings.ToUpper(sha256a) + " a b\n",
		"noise": "nothing\nffff\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []string{"link", "link2"} {
		if err := os.Symlink("a", filepath.Join(root, l)); err != nil {
			t.Fatal(err)
		}
	}
}

var none any

// sum is the source_sum of files that contain an a.
var sum = map[string]any{"hash_type": "sha256", "hsum": sha256a}

// managedJobs are run with Brine and Salt, in order. R/ stands for the
// directory.
var managedJobs = [][]any{
	{"file.get_source_sum", "/x/a", "source_hash=" + md5a}, {"file.get_source_sum", "/x/a", "http://h/a", "sha1 = " + strings.ToUpper(sha1a)},
	{"file.get_source_sum", "/x/a", "source_hash=R/sums"},
	{"file.get_source_sum", "/x/q", "source=http://h/other", "source_hash=R/sums"},
	{"file.get_source_sum", "/x/q", "source_hash=R/sums", "source_hash_name=a b"}, {"file.get_source_sum", "/x/q", "source_hash=R/noise"},
	{"file.get_source_sum", "/x/q", "source_hash=md5=12"}, {"file.get_source_sum", "/x/q", "source_hash=crc=12"},
	{"file.get_source_sum", "/x/q", "source_hash=xyz"}, {"file.get_source_sum", "/x/q", "source_hash=md5=" + sha1a},
	{"file.get_source_sum", "/x/q", "source_hash=foo://x"},
	{"file.extract_hash", "R/sums", "sha512", "/x/a"}, {"file.extract_hash", "R/sums", "sha1"}, {"file.extract_hash", "R/sums", "what", "/x/other"},
	{"file.extract_hash", "R/sums", "", "/x/a"}, {"file.extract_hash", "R/noise"},
	{"file.extract_hash", "R/sums", "sha256", "", "", "none"},
	{"file.source_list", "salt://none", md5a, "base"}, {"file.source_list", []any{"salt://none", "R/none", "R/a"}, md5a, "base"},
	{"file.source_list", []any{"R/none", map[string]any{"salt://s": sha1a}}, md5a, "base"},
	{"file.source_list", []any{"salt://none"}, none, "base"}, {"file.source_list", []any{"file://R/a"}, none, "base"},
	{"file.apply_template_on_contents", "{{ a }} {{ b }}", "jinja", map[string]any{"a": "1"}, map[string]any{"a": "2", "b": "3"}, "base"},
	{"file.apply_template_on_contents", "x", "what", none, none, "base"},
	{"file.psed", "R/sed", "^x", "z"}, {"file.read", "R/sed"}, {"file.psed", "R/sed", "1", "\\g<0>2", "", ".old", "M"}, {"file.read", "R/sed"},
	{"file.read", "R/sed.old"}, {"file.psed", "R/sed", "=.*", "", "", ".bak", "g"}, {"file.read", "R/sed"},
	{"file.psed", "R/none", "a", "b"}, {"file.psed", "R/sed", "a", "b", "", ".bak", "q"},
	{"file.get_selinux_context", "R/a"}, {"file.set_selinux_context", "R/a"}, {"file.set_selinux_context", "R/a", "user=system_u"},
	{"file.restorecon", "R/none"}, {"file.restorecon", "R/none", true},
	{"file.get_managed", "R/n", none, none, none, none, none, none, none, none, "base", none, none},
	{"file.get_managed", "R/n", none, "R/a", none, none, none, none, none, none, "base", none, none},
	{"file.get_managed", "R/n", none, "R/none", none, none, none, none, none, none, "base", none, none},
	{"file.get_managed", "R/n", none, "salt://s", none, none, none, none, none, none, "base", none, none},
	{"file.get_managed", "R/n", none, "salt://none", none, none, none, none, none, none, "base", none, none},
	{"file.get_managed", "R/n", none, "http://127.0.0.1:1/x", none, none, none, none, none, none, "base", none, none},
	{"file.get_managed", "R/n", none, "file://R/a", md5a, none, none, none, none, none, "base", none, none},
	{"file.get_managed", "R/n", "what", "R/a", none, none, none, none, none, none, "base", none, none},
	{"file.check_managed", "R/a", "R/a", none, none, "root", "root", "0644", none, none, none, none, "base"},
	{"file.check_managed", "R/a", "R/old", none, none, none, none, none, none, none, none, none, "base"},
	{"file.check_managed", "R/a", "R/none", none, none, none, none, none, none, none, none, none, "base"},
	{"file.check_managed", "R/n", none, none, none, none, none, none, none, none, none, none, "base", "text"},
	{"file.check_managed_changes", "R/a", "R/old", none, none, "nobody", "daemon", "600", none, none, none, none, "base"},
	{"file.check_managed_changes", "R/a", "salt://s", none, none, none, none, none, none, none, none, none, "base"},
	{"file.check_managed_changes", "R/a", none, none, none, 0, "root", "0644", none, none, none, none, "base", "a"},
	{"file.check_managed_changes", "R/a", none, none, none, none, none, none, none, none, none, none, "base", "b\n"},
	{"file.check_managed_changes", "R/a", "salt://t", none, none, none, none, none, none, "jinja", map[string]any{"who": "x"}, none, "base"},
	{"file.check_managed_changes", "R/a", "R/none", none, none, none, none, none, none, none, none, none, "base"},
	{"file.check_file_meta", "R/old", none, none, sum, none, none, none, none, "base"}, {"file.check_file_meta", "R/old", "R/a", none, sum, "root", "root",
		644, none, "base"}, {"file.check_file_meta", "R/a", none, none, sum, none, none, "0755", none, "base"},
	{"file.check_file_meta", "R/none", none, none, sum, none, none, none, none, "base"}, {"file.check_file_meta", "R/old", none, "salt://s", sum, none, none,
		none, none, "base"}, {"file.check_file_meta", "R/link", none, none, none, "nobody", none, none, none, "base"},
	{"file.check_perms", "R/owned", map[string]any{}, "nobody", "daemon", "0600"}, {"file.check_perms", "R/owned", map[string]any{}, "nobody", "daemon",
		"0600"}, {"file.check_perms", "R/owned", none, "root", "root", 640}, {"file.check_perms", "R/wrong", none, 0, 0, none},
	{"file.check_perms", "R/owned", map[string]any{"name": "q", "changes": map[string]any{}, "comment": "before", "result": true}, none, none, "0644"},
	{"file.check_perms", "R/owned", none, "nosuchuser", "root", none}, {"file.check_perms", "R/none", none, "root", "root", none},
	{"file.check_perms", "R/link", none, "nobody", none, "0600"}, {"file.get_mode", "R/a"}, {"file.get_user", "R/link", false},
	{"file.manage_file", "R/new", "R/a", none, "R/a", sum, none, none, none, none, "base", none}, {"file.read", "R/new"}, {"file.get_mode", "R/new"},
	{"file.manage_file", "R/new", "R/a", none, "R/a", sum, none, none, none, none, "base", none},
	{"file.manage_file", "R/new2", none, none, none, none, "nobody", "daemon", "0640", none, "base", none}, {"file.get_user", "R/new2"},
	{"file.manage_file", "R/new3", none, none, none, none, none, none, none, none, "base", none, "contents=text"}, {"file.read", "R/new3"},
	{"file.manage_file", "R/new3", none, none, none, none, "nobody", none, "0600", none, "base", none, map[string]any{"__kwarg__": true,
		"contents": "other\nlines\n"}}, {"file.get_mode", "R/new3"}, {"file.get_user", "R/new3"},
	{"file.manage_file", "R/new3", none, none, none, none, none, none, none, none, "base", none, "contents=x", "show_changes=False"},
	{"file.manage_file", "R/d/e/new", none, none, none, none, none, none, "0640", none, "base", none, "contents=x"},
	{"file.manage_file", "R/d/e/new", none, none, none, none, none, none, "0640", none, "base", none, true, "contents=x"}, {"file.get_mode", "R/d/e"},
	{"file.get_mode", "R/d/e/new"},
	{"file.manage_file", "R/link2", none, none, none, none, none, none, none, none, "base", none, "contents=through"}, {"file.read", "R/a"},
	{"file.is_link", "R/link2"}, {"file.manage_file", "R/old", none, none, "salt://s", map[string]any{}, none, none, none, none, "base", none},
	{"file.read", "R/old"},
	{"file.manage_file", "R/link2", "R/sums", none, "R/sums", map[string]any{"hash_type": "md5", "hsum": md5a}, none, none, none, none, "base", none},
	{"file.manage_file", "R/new4", none, none, none, none, none, none, "0644", none, "base", none, "contents=é", "encoding=latin-1"},
	{"file.get_hash", "R/new4"},
	{"file.manage_file", "R/link2", "R/sums", none, "salt://s", map[string]any{"hash_type": "md5", "hsum": md5a}, none, none, none, none, "base", none,
		"follow_symlinks=False"}, {"file.is_link", "R/link2"},
}

func TestManagedLikeSalt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("owners can only be changed by root")
	}
	// check_managed ignores owners of files below the directory for temporary files.
	base := t.TempDir()
	theirs, ours := filepath.Join(base, "theirs"), filepath.Join(base, "ours!!")
	growManaged(t, theirs)
	growManaged(t, ours)
	asked := make([][]any, len(managedJobs))
	for i, j := range managedJobs {
		asked[i] = rooted(theirs, j).([]any)
	}
	recorded := stocktest.Ask(t, map[string]any{"file_roots": map[string]any{"base": []string{filepath.Join(theirs, "roots")}}}, asked...)
	quiet := slog.New(slog.DiscardHandler)
	srv := fileserver.New(fileserver.Options{
		FileRoots: value.DictOf("base", value.ListOf(filepath.Join(ours, "roots"))), Backends: []string{"roots"}, IgnoreRegex: value.ListOf(),
		IgnoreGlob: value.ListOf(),
	}, fileserver.Config{CacheDir: filepath.Join(base, "cache"), HashType: "sha256"}, quiet)
	files := fileclient.New(srv, fileclient.Options{CacheDir: filepath.Join(base, "minion"), HashType: "sha256"}, quiet)
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range managedJobs {
		args := rooted(ours, j).([]any)
		wire := make([]any, 0, len(args))
		for _, a := range args[1:] {
			wire = append(wire, value.From(a))
		}
		c := &fn.Call{Files: files, Templates: fntest.Templates{OfText: func(_ context.Context, tm fn.Template) (string, error) {
			out := string(tm.Source)
			for k, v := range tm.Context.All() {
				out = strings.ReplaceAll(out, "{{ "+value.Str(k)+" }}", value.Str(v))
			}
			return out, nil
		}}}
		got := r.Run(t.Context(), c, fn.Job{Fun: args[0].(string), Arg: wire})
		text := func(v any, root string) string {
			// Brine's message does not list protocols that it does not support
			// for files of hashes.
			return strings.NewReplacer(root, "R", ", swift, s3.", ".").Replace(value.Repr(inOrder(v)))
		}
		g, w := text(got.Return, ours), text(recorded[i].At("return"), theirs)
		failed := recorded[i].Int("retcode") != 0
		if failed && !got.Success && (strings.Contains(w, "The minion function caused an exception") || strings.Contains(w, "Unable to run command")) {
			continue
		}
		if g != w {
			t.Errorf("%v:\n got %.600s\nSalt %.600s", j, g, w)
		}
	}
}

// inOrder sorts the keys of maps, as the order of Salt's is meaningless.
func inOrder(v any) any {
	switch v := v.(type) {
	case value.Tuple:
		return inOrder(value.ListOf(v...))
	case *value.List:
		out := value.ListOf()
		for _, x := range v.Items {
			out.Append(inOrder(x))
		}
		return out
	case *value.Dict:
		keys := value.Texts(value.ListOf(v.Keys()...))
		slices.Sort(keys)
		out := value.NewDict(len(keys))
		for _, k := range keys {
			out.Set(k, inOrder(v.At(k)))
		}
		return out
	}
	return v
}

// rooted replaces R/ in arguments by a directory.
func rooted(root string, v any) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, "R/", root+"/")
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = rooted(root, x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = rooted(root, x)
		}
		return out
	}
	return v
}

// TestManagedInTest covers test runs, and the use of limit: Salt changes the
// files in both cases, or fails.
func TestManagedInTest(t *testing.T) {
	root := t.TempDir()
	growManaged(t, root)
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	run := func(test bool, fun string, arg ...any) string {
		c := &fn.Call{Config: fn.Tree{Dict: value.DictOf("test", test)}}
		for i, a := range arg {
			arg[i] = value.From(rooted(root, a))
		}
		return strings.ReplaceAll(value.Repr(r.Run(t.Context(), c, fn.Job{Fun: fun, Arg: arg}).Return), root, "R")
	}
	user, group := owner(t, root)
	for _, c := range []struct {
		arg  []any
		want string
	}{
		{[]any{"file.check_perms", "R/a", none, none, none, "0600"},
			"[{'name': 'R/a', 'changes': {'mode': '0600'}, 'comment': '', 'result': None}, {'luser': 'root', 'lgroup': 'root', 'lmode': '0644'}]"},
		{[]any{"file.manage_file", "R/n", none, none, none, none, none, none, none, none, "base", none, "contents=x"},
			"{'name': 'R/n', 'changes': {'diff': 'New file'}, 'comment': 'File R/n not updated', 'result': None}"},
		{[]any{"file.manage_file", "R/n", none, "", none, none, none, none, none, none, "base", none, "contents=x"},
			"{'name': 'R/n', 'changes': {'diff': 'New file'}, 'comment': 'File R/n not updated', 'result': None}"},
		{[]any{"file.manage_file", "R/a", none, none, none, none, none, none, none, none, "base", none, "contents=x", "show_changes=False"},
			"{'name': 'R/a', 'changes': {'diff': '<show_changes=False>'}, 'comment': 'File R/a updated', 'result': None}"},
	} {
		if got := run(true, c.arg[0].(string), c.arg[1:]...); got != strings.NewReplacer("'luser': 'root'", "'luser': '"+user+"'", "'lgroup': 'root'",
			"'lgroup': '"+group+"'").Replace(c.want) {
			t.Errorf("%v: got %s, want %s", c.arg, got, c.want)
		}
	}
	if st, err := os.Stat(filepath.Join(root, "a")); err != nil || st.Mode().Perm() != 0o644 || st.Size() != 1 {
		t.Errorf("the file has changed: %v, %v", st, err)
	}
	if _, err := os.Stat(filepath.Join(root, "n")); err == nil {
		t.Error("the file was made")
	}
	if got := run(false, "file.psed", "R/sed", "1", "2", "\ny"); got != "None" {
		t.Error(got)
	}
	if b, err := os.ReadFile(filepath.Join(root, "sed")); err != nil || string(b) != "x=1\ny=2\nx='2'/\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// owner returns the user and group that own a file of this test.
func owner(t *testing.T, path string) (user, group string) {
	t.Helper()
	x, err := (file{&host.Machine{}}).look(path, true)
	if err != nil {
		t.Fatal(err)
	}
	return x.User(), x.Group()
}

// TestSourceSumSaysWhy gets the file of hashes from a server with an untrusted
// certificate. The error must say that, not that a file is missing.
func TestSourceSumSaysWhy(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, sha256a+"  x\n") }))
	t.Cleanup(srv.Close)
	quiet := slog.New(slog.DiscardHandler)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	empty := fileserver.New(fileserver.Options{FileRoots: value.NewDict(0), Backends: []string{"roots"}, IgnoreRegex: value.ListOf(),
		IgnoreGlob: value.ListOf()}, fileserver.Config{CacheDir: t.TempDir(), HashType: "sha256"}, quiet)
	files := fileclient.New(empty, fileclient.Options{CacheDir: t.TempDir(), HashType: "sha256"}, quiet)
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	sum := func(verify bool) fn.Outcome {
		return r.Run(t.Context(), &fn.Call{Files: files}, fn.Job{Fun: "file.get_source_sum",
			Arg: []any{"/x", srv.URL + "/x", value.DictOf("__kwarg__", true, "source_hash", srv.URL+"/x.sha256", "verify_ssl", verify)}})
	}
	if o := sum(true); o.Success || o.Retcode == 0 || !strings.Contains(value.Str(o.Return), "failed to verify certificate") {
		t.Errorf("with a bad certificate: %s", value.Repr(o.Return))
	}
	if o := sum(false); !o.Success || !strings.Contains(value.Repr(o.Return), sha256a) {
		t.Errorf("with verify_ssl=False: %s", value.Repr(o.Return))
	}
}
