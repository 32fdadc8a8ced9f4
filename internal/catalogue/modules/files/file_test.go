package files

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/shell"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
	"brine/internal/py/value"
)

// plant creates a small tree.
func plant(t *testing.T, root string) {
	t.Helper()
	for name, text := range map[string]string{
		"a": "one\ntwo\nthree\n", "b": "one\n2\nthree", "d/x.txt": "x=1\n#y=2\n", "d/e/y.log": strings.Repeat("log\n", 500), "bin": "\x00\x01", "ü": "ß\n",
		"move": "m\n", "edit": "k=1\nk=2\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{"link": "a", "broken": "none", "dlink": "d"} {
		if err := os.Symlink(to, filepath.Join(root, from)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "b"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fileJobs are calls whose results do not depend on the time. R stands for the directory.
var fileJobs = [][]any{
	{"file.file_exists", "R/a"}, {"file.file_exists", "R/d"}, {"file.file_exists", "R/none"}, {"file.file_exists", "R/link"},
	{"file.directory_exists", "R/d"}, {"file.directory_exists", "R/a"},
	{"file.directory_exists", "R/dlink"}, {"file.path_exists_glob", "R/*.none"}, {"file.path_exists_glob", "R/?"}, {"file.is_link", "R/link"},
	{"file.is_link", "R/a"}, {"file.is_link", "R/broken"},
	{"file.is_hardlink", "R/a"}, {"file.is_fifo", "R/a"}, {"file.is_chrdev", "/dev/null"}, {"file.is_blkdev", "/dev/null"}, {"file.get_mode", "R/b"},
	{"file.get_user", "R/b"}, {"file.get_group", "R/b"},
	{"file.get_uid", "R/b"}, {"file.get_gid", "R/b"}, {"file.get_mode", "R/none"}, {"file.user_to_uid", "root"}, {"file.user_to_uid", "nosuchuser"},
	{"file.group_to_gid", "daemon"}, {"file.group_to_gid", "nosuchgroup"},
	{"file.uid_to_user", 0}, {"file.uid_to_user", 54321}, {"file.gid_to_group", 1}, {"file.gid_to_group", 54321}, {"file.get_hash", "R/a"},
	{"file.get_hash", "R/a", "md5"}, {"file.get_sum", "R/a", "sha512"},
	{"file.get_sum", "R/none"}, {"file.check_hash", "R/a", "md5:deed54b823522e0525693b090363f9df"},
	{"file.check_hash", "R/a", "deed54b823522e0525693b090363f9de"}, {"file.check_hash", "R/a", "xyz"},
	{"file.read", "R/a"}, {"file.read", "R/ü"}, {"file.readlink", "R/link"}, {"file.readlink", "R/a"}, {"file.readlink", "rel"},
	{"file.readlink", "R/link", "canonicalize=True"},
	{"file.access", "R/a", "r"}, {"file.access", "R/a", "x"}, {"file.access", "R/none", "f"}, {"file.access", "R/a", "q"}, {"file.contains", "R/a", "two"},
	{"file.contains", "R/a", "none"}, {"file.contains", "R/none", "x"},
	{"file.contains_regex", "R/a", "^t.o$"}, {"file.contains_regex", "R/a", "^x"}, {"file.contains_regex", "R/d/x.txt", "^y", "lchar=#"},
	{"file.contains_glob", "R/a", "*two*"}, {"file.contains_glob", "R/a", "two"},
	{"file.get_diff", "R/a", "R/b"}, {"file.get_diff", "R/a", "R/b", "show_filenames=False"}, {"file.get_diff", "R/a", "R/a"},
	{"file.get_diff", "R/a", "R/bin"}, {"file.pardir"}, {"file.normpath", "a/b/../c//d"},
	{"file.basename", "/a/b"}, {"file.basename", "/a/b/"}, {"file.dirname", "/a/b"}, {"file.dirname", "a"}, {"file.dirname", "/a"},
	{"file.join", "/", "a", "b"}, {"file.join", "/a/", "/b", "c"}, {"file.join", "a", "b"},
	{"file.find", "R", "name=*.txt"}, {"file.find", "R", "type=f"}, {"file.find", "R", "type=d"}, {"file.find", "R", "type=l"},
	{"file.find", "R", "type=f", "print=name,size"}, {"file.find", "R", "size=+1k"},
	{"file.find", "R", "size=-10b"}, {"file.find", "R", "maxdepth=1", "type=f"}, {"file.find", "R", "mindepth=2"},
	{"file.find", "R", "iname=*.LOG", "print=name,type,mode,user,md5"}, {"file.find", "R", "regex=^[ab]$"},
	{"file.find", "R", "grep=x=1"}, {"file.find", "R", "owner=root", "type=d"}, {"file.find", "R", "mtime=1d"}, {"file.find", "R", "mtime=-1d", "type=d"},
	{"file.find", "R", "what=x"}, {"file.find", "R", "type=q"},
	{"file.find", "R/none"}, {"file.search", "R/a", "t.o"}, {"file.search", "R/a", "^two$"}, {"file.search", "R/a", "none"}, {"file.search", "R/none", "x"},
	{"file.search", "R/bin", "x"}, {"file.set_mode", "R/b", "0640"}, {"file.get_mode", "R/b"}, {"file.set_mode", "R/none", "0640"},
	{"file.set_mode", "R/b", "999"}, {"file.chown", "R/b", "nobody", "daemon"},
	{"file.get_user", "R/b"}, {"file.chown", "R/b", "nosuchuser", "nosuchgroup"}, {"file.chown", "R/none", "root", "root"}, {"file.chgrp", "R/b", "root"},
	{"file.get_group", "R/b"}, {"file.touch", "R/new"},
	{"file.write", "R/new", "l1", "l2"}, {"file.append", "R/new", "l3"}, {"file.append", "R/b", "more"}, {"file.read", "R/b"},
	{"file.prepend", "R/new", "l0"}, {"file.read", "R/new"},
	{"file.truncate", "R/new", 4}, {"file.read", "R/new"}, {"file.link", "R/a", "R/hard"}, {"file.is_hardlink", "R/a"}, {"file.link", "R/none", "R/hard2"},
	{"file.symlink", "R/a", "R/sym"}, {"file.symlink", "R/a", "R/sym"},
	{"file.symlink", "R/b", "R/sym"}, {"file.symlink", "R/b", "R/sym", "force=True"}, {"file.readlink", "R/sym"}, {"file.symlink", "R/b", "R/a"},
	{"file.rename", "R/move", "R/moved"}, {"file.rename", "R/none", "R/x"},
	{"file.copy", "R/moved", "R/copied"}, {"file.copy", "R/d", "R/dcopy"}, {"file.copy", "R/d", "R/dcopy", "recurse=True"}, {"file.find", "R/dcopy"},
	{"file.move", "R/copied", "R/elsewhere"}, {"file.remove", "R/elsewhere"},
	{"file.remove", "R/elsewhere"}, {"file.remove", "rel"}, {"file.rmdir", "R/d"}, {"file.mkdir", "R/m/n"}, {"file.directory_exists", "R/m/n"},
	{"file.rmdir", "R/m/n"}, {"file.makedirs", "R/o/p/"}, {"file.directory_exists", "R/o/p"},
	{"file.makedirs", "R/o/p/"}, {"file.makedirs_perms", "R/q/r", "mode=0700"}, {"file.get_mode", "R/q/r"}, {"file.remove", "R/dcopy"},
	{"file.replace", "R/edit", "^k=(.)", "v=\\1"}, {"file.read", "R/edit"},
	{"file.replace", "R/edit", "nothing", "x"}, {"file.replace", "R/edit", "nothing", "x", "append_if_not_found=True", "show_changes=False"},
	{"file.replace", "R/edit", "v", "w", "dry_run=True"}, {"file.line", "R/edit", "new", "mode=insert", "location=start"},
	{"file.line", "R/edit", "new", "mode=delete"}, {"file.line", "R/edit", "x", "mode=what"}, {"file.line", "R/none", "x", "mode=insert", "location=end"},
	{"file.blockreplace", "R/edit", "S", "E", "text", "append_if_not_found=True"},
	{"file.blockreplace", "R/edit", "S", "E", "other"}, {"file.blockreplace", "R/edit", "N", "M", "other"}, {"file.comment", "R/d/x.txt", "^x"},
	{"file.uncomment", "R/d/x.txt", "y=2"}, {"file.comment_line", "R/d/x.txt", "^nothing"},
	{"file.read", "R/d/x.txt"}, {"file.read", "R/edit"}, {"file.find", "R/d", "name=*.bak", "delete"}, {"file.find", "R/d"}, {"file.diskusage", "R/d/e"},
	{"file.grep", "R/a", "t.o"}, {"file.grep", "R/[ab]", "one", "-h", "-i"}, {"file.grep", "R/a", "none"}, {"file.grep", "R/a", "x", "-i -v"},
	{"file.sed", "R/a", "t(.)o", "T\\1/'", "limit=two"}, {"file.read", "R/a"},
	{"file.sed", "R/a", "T", "u", "", "", "-r -e", "g", false, true}, {"file.read", "R/a"}, {"file.sed", "R/none", "a", "b"},
	{"file.sed_contains", "R/a", "t.r"}, {"file.sed_contains", "R/a", "^x"}, {"file.sed_contains", "R/none", "x"},
	{"file.mknod_fifo", "R/p", "root", "root", "0640"}, {"file.mknod_fifo", "R/p"}, {"file.is_fifo", "R/p"}, {"file.get_mode", "R/p"},
	{"file.mknod", "R/nodes/p", "p"}, {"file.mknod", "R/x", "q"}, {"file.get_devmm", "/dev/null"}, {"file.get_devmm", "R/a"},
	{"file.lsattr", "R/none"}, {"file.chattr", "R/a"}, {"file.chattr", "R/a", "operator=add"}, {"file.patch", "R/none", "R/none.diff", "options=--what"},
	{"file.list_backups", "R/a"}, {"file.list_backups_dir", "R/"},
	{"file.restore_backup", "R/a", 0}, {"file.delete_backup", "R/a", "x"}, {"file.remove_backup", "R/a", "00"},
}

// differ lists calls for which Brine's result is better, with the reason.
var differ = map[string]string{
	"file.blockreplace R/edit S E other": "a line without an end is not glued to the marker twice",
	"file.line R/edit x mode=what":       "the same fault, in fewer words",
}

// TestFileLikeSalt runs the same calls on a stock minion and on Brine, in two trees.
func TestFileLikeSalt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("owners can only be changed by root")
	}
	theirs, ours := filepath.Join(t.TempDir(), "theirs"), filepath.Join(t.TempDir(), "ours!!")
	plant(t, theirs)
	plant(t, ours)
	in := func(root string, job []any) []any {
		out := slices.Clone(job)
		for i, a := range out {
			if s, ok := a.(string); ok {
				out[i] = strings.ReplaceAll(s, "R/", root+"/")
				if s == "R" {
					out[i] = root
				}
			}
		}
		return out
	}
	var ask [][]any
	for _, j := range fileJobs {
		ask = append(ask, in(theirs, j))
	}
	recorded := stocktest.Ask(t, nil, ask...)
	r, err := fn.NewRegistry(nil, append(Modules(&host.Machine{}), shell.Modules()...)...)
	if err != nil {
		t.Fatal(err)
	}
	pid := regexp.MustCompile(`'pid': \d+`)
	text := func(v any, root string) string {
		return pid.ReplaceAllString(strings.ReplaceAll(value.Repr(v), root, "R"), "'pid': 1")
	}
	for i, j := range fileJobs {
		name := strings.TrimSuffix(strings.ReplaceAll(strings.Trim(value.Repr(value.From(j)), "[]"), "'", ""), ",")
		name = strings.ReplaceAll(name, ", ", " ")
		args := in(ours, j)
		wire := make([]any, 0, len(args))
		for _, a := range args[1:] {
			wire = append(wire, value.From(a))
		}
		got := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: args[0].(string), Arg: wire})
		g, w := text(got.Return, ours), text(recorded[i].At("return"), theirs)
		failed := recorded[i].Int("retcode") != 0
		if differ[name] != "" || failed && !got.Success {
			if failed && (got.Success || g == "''") {
				t.Errorf("%s: %s, Salt fails: %s", name, g, w)
			}
			continue
		}
		if g != w {
			t.Errorf("%s:\n got %.600s\nSalt %.600s", name, g, w)
		}
	}
}
