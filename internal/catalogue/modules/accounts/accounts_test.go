package accounts

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/call/fn/fntest"
	"brine/internal/catalogue/modules/core"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
	"brine/internal/py/value"
)

func TestCatalogue(t *testing.T) { fntest.Catalogue(t, Modules(&host.Machine{})) }

const signatures = "testdata/signatures.json"

func TestSignatures(t *testing.T) {
	stocktest.Signatures(t, signatures, Modules(&host.Machine{}), map[string]string{})
}

func TestRecordingIsTrue(t *testing.T) { stocktest.Verify(t, signatures) }

// fake is a machine below a directory. Its programs only record how they were
// called.
type fake struct {
	*host.Machine
	calls  []string
	result map[string]func() (string, int) // by program
}

func newFake(t *testing.T, files map[string]string) *fake {
	t.Helper()
	f := &fake{Machine: &host.Machine{Root: t.TempDir()}, result: map[string]func() (string, int){}}
	for _, name := range []string{"useradd", "luseradd", "userdel", "usermod", "groupadd", "groupdel", "groupmod", "gpasswd", "chage", "passwd"} {
		f.write(t, "/usr/sbin/"+name, "#!/bin/false\n", 0o755)
	}
	for name, text := range files {
		f.write(t, name, text, 0o640)
	}
	f.Exec = func(_ context.Context, path string, args ...string) (string, int, error) {
		program := filepath.Base(path)
		f.calls = append(f.calls, strings.Join(append([]string{program}, args...), " "))
		if r, ok := f.result[program]; ok {
			out, exit := r()
			return out, exit, nil
		}
		return "", 0, nil
	}
	return f
}

func (f *fake) write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(f.Path(path)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.Path(path), []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func (f *fake) run(t *testing.T, fun string, arg ...any) fn.Outcome {
	t.Helper()
	r, err := fn.NewRegistry(nil, append(Modules(f.Machine), core.Modules()...)...)
	if err != nil {
		t.Fatal(err)
	}
	grains := fn.Tree{Dict: value.DictOf("os_family", "Debian")}
	return r.Run(t.Context(), &fn.Call{Grains: grains}, fn.Job{Fun: fun, Arg: arg})
}

const (
	passwd = "root:x:0:0:root:/root:/bin/bash\nfred:x:1000:100:Fred,R1,,5,a,b:/home/fred:/bin/sh\n"
	groups = "root:x:0:\nusers:x:100:\nwheel:x:10:fred,root\nfred:x:1000:\n"
	hashes = "root:*:19000:0:99999:7:::\nfred:!$6$x$y:19001::::30:20000:\n"
)

func system(t *testing.T) *fake {
	return newFake(t, map[string]string{"/etc/passwd": passwd, "/etc/group": groups, "/etc/shadow": hashes, "/etc/login.defs": "# x\nUSERGROUPS_ENAB yes\n",
		"/other/etc/passwd": "z:x:5:5::/:/bin/z\n", "/other/etc/group": "zg:x:5:\n", "/other/etc/shadow": "z:!:1:::::"})
}

func TestReading(t *testing.T) {
	f := system(t)
	for _, c := range []struct {
		fun  string
		arg  []any
		want string
	}{
		{"user.info", []any{"fred"},
			"{'gid': 100, 'groups': ['users', 'wheel'], 'home': '/home/fred', 'name': 'fred', 'passwd': 'x', 'shell': '/bin/sh', 'uid': 1000, " +
				"'fullname': 'Fred', 'roomnumber': 'R1', 'workphone': '', 'homephone': '5', 'other': 'a,b'}"},
		{"user.info", []any{"nobody"}, "{}"},
		{"user.list_users", nil, "['fred', 'root']"},
		{"user.list_users", []any{"/other"}, "['z']"},
		{"user.list_groups", []any{"root"}, "['root', 'wheel']"},
		{"user.get_loginclass", []any{"fred"}, "False"},
		{"user.chloginclass", []any{"fred", "staff"}, "False"},
		{"user.list_groups", []any{"nobody"}, "[]"},
		{"user.primary_group", []any{"fred"}, "'users'"},
		{"user.primary_group", []any{"nobody"}, "\"ERROR: User 'nobody' does not exist\""},
		{"group.info", []any{"wheel"}, "{'name': 'wheel', 'passwd': 'x', 'gid': 10, 'members': ['fred', 'root']}"},
		{"group.info", []any{"nothing"}, "{}"},
		{"group.getent", []any{"root=/other"}, "[{'name': 'zg', 'passwd': 'x', 'gid': 5, 'members': []}]"},
		{"shadow.info", []any{"fred"},
			"{'name': 'fred', 'passwd': '!$6$x$y', 'lstchg': 19001, 'min': -1, 'max': -1, 'warn': -1, 'inact': 30, 'expire': 20000}"},
		{"shadow.info", []any{"nobody"}, "{'name': '', 'passwd': '', 'lstchg': '', 'min': '', 'max': '', 'warn': '', 'inact': '', 'expire': ''}"},
		{"shadow.list_users", nil, "['fred', 'root']"},
		{"shadow.default_hash", nil, "'!'"},
		{"shadow.gen_password", []any{"MyP@asswd", "crypt_salt=My5alT", "algorithm=md5"}, "'$1$My5alT$M78H4MnI3FEp6gxUIuOHR.'"},
	} {
		if got := value.Repr(f.run(t, c.fun, c.arg...).Return); got != c.want {
			t.Errorf("%s %v: got  %s\nwant %s", c.fun, c.arg, got, c.want)
		}
	}
	if l := f.run(t, "user.getent").Return.(*value.List); l.Len() != 2 {
		t.Errorf("%v", value.Repr(l))
	}
	if len(f.calls) != 0 {
		t.Errorf("programs ran: %v", f.calls)
	}
}

func TestChanging(t *testing.T) {
	groups := &value.List{Items: []any{"wheel", "new"}}
	for _, c := range []struct {
		fun  string
		arg  []any
		want []string // programs
	}{
		{"user.add", []any{"new"}, []string{"useradd -m new"}},
		{"user.add", []any{"new", "uid=7", "gid=users", "shell=/bin/z", "home=/h", "unique=false", "system=true", "createhome=false", "nologinit=true",
			"fullname=N, jr", "workphone=5", "root=/r"},
			[]string{"useradd -s /bin/z -u 7 -g users -M -l -d /h -o -r -c N, jr,,5 -R /r new"}},
		{"user.add", []any{"new", map[string]any{"__kwarg__": true, "groups": groups}}, []string{"useradd -g new -m new", "usermod -G wheel,new new"}},
		{"user.add", []any{"new", "usergroup=true"}, []string{"useradd -U -m new"}},
		{"user.add", []any{"new", "usergroup=false", "local=true"}, []string{"luseradd -n new"}},
		{"user.delete", []any{"fred", "remove=true", "force=true"}, []string{"userdel -r -f fred"}},
		{"user.chuid", []any{"fred", 5}, []string{"usermod -u 5 fred"}},
		{"user.chuid", []any{"fred", 1000}, nil},
		{"user.chgid", []any{"fred", 5}, []string{"usermod -g 5 fred"}},
		{"user.chshell", []any{"fred", "/bin/z"}, []string{"usermod -s /bin/z fred"}},
		{"user.chhome", []any{"fred", "/h", "persist=true"}, []string{"usermod -m -d /h fred"}},
		{"user.chfullname", []any{"fred", "F. X"}, []string{"usermod -c F. X,R1,,5,a,b fred"}},
		{"user.chother", []any{"fred", nil}, []string{"usermod -c Fred,R1,,5 fred"}},
		{"user.rename", []any{"fred", "alfred"}, []string{"usermod -l alfred fred"}},
		{"user.chgroups", []any{"fred", "users,wheel"}, nil},
		{"user.chgroups", []any{"fred", "a,b", "append=true"}, []string{"usermod -a -G a,b fred"}},
		{"group.add", []any{"g", 7, "system=true", "non_unique=true"}, []string{"groupadd -g 7 -o -r g"}},
		{"group.delete", []any{"g", "root=/r"}, []string{"groupdel -R /r g"}},
		{"group.chgid", []any{"wheel", 10}, nil},
		{"group.chgid", []any{"wheel", 11}, []string{"groupmod -g 11 wheel"}},
		{"group.adduser", []any{"wheel", "x"}, []string{"gpasswd --add x wheel"}},
		{"group.deluser", []any{"wheel", "fred"}, []string{"gpasswd --del fred wheel"}},
		{"group.deluser", []any{"wheel", "nobody"}, nil},
		{"group.members", []any{"wheel", "a,b"}, []string{"gpasswd --members a,b wheel"}},
		{"group.members", []any{"wheel", ""}, []string{"gpasswd --members  wheel"}},
		{"shadow.set_maxdays", []any{"fred", 9}, []string{"chage -M 9 -- fred"}},
		{"shadow.set_maxdays", []any{"fred", -1}, nil},
		{"shadow.set_date", []any{"fred", "2020-01-01"}, []string{"chage -d 2020-01-01 -- fred"}},
		{"shadow.lock_password", []any{"root"}, []string{"passwd -l -- root"}},
		{"shadow.lock_password", []any{"fred"}, nil},
		{"shadow.unlock_password", []any{"fred"}, []string{"passwd -u -- fred"}},
		{"shadow.del_password", []any{"fred"}, []string{"passwd -d -- fred"}},
	} {
		f := system(t)
		arg := make([]any, len(c.arg))
		for i, v := range c.arg {
			arg[i] = value.From(v)
		}
		o := f.run(t, c.fun, arg...)
		if _, ok := o.Return.(bool); !ok || !slices.Equal(f.calls, c.want) {
			t.Errorf("%s %v: returns %v, ran %q, want %q", c.fun, c.arg, o.Return, f.calls, c.want)
		}
	}
}

// TestRefused checks that no argument that looks like an option reaches a
// program.
func TestRefused(t *testing.T) {
	for fun, arg := range map[string][]any{
		"user.add": {"-x"}, "user.delete": {"--root=/"}, "user.rename": {"fred", "-l"}, "user.chshell": {"fred", "-x"}, "user.chuid": {"fred", "five"},
		"user.chgroups": {"fred", "-a"}, "group.add": {""}, "group.delete": {"-R"}, "group.adduser": {"wheel", "-x"}, "group.members": {"wheel", "--x"},
	} {
		f := system(t)
		if o := f.run(t, fun, arg...); o.Success || len(f.calls) != 0 {
			t.Errorf("%s: %+v, ran %q", fun, o, f.calls)
		}
	}
}

func TestResults(t *testing.T) {
	f := system(t)
	f.result["usermod"] = func() (string, int) {
		f.write(t, "/etc/passwd", strings.ReplaceAll(passwd, ":1000:", ":7:"), 0o640)
		return "", 0
	}
	if o := f.run(t, "user.chuid", "fred", 7); o.Return != true {
		t.Errorf("%+v", o)
	}
	f.result["usermod"] = func() (string, int) { return "", 6 }
	if o := f.run(t, "user.chuid", "fred", 8); o.Return != false {
		t.Errorf("%+v", o)
	}
	f.result["useradd"] = func() (string, int) { return "", 9 }
	if o := f.run(t, "user.add", "x"); o.Return != false {
		t.Errorf("%+v", o)
	}
	if o := f.run(t, "user.chuid", "nobody", 8); o.Return != "ERROR: User 'nobody' does not exist" {
		t.Errorf("%+v", o)
	}
	if o := f.run(t, "group.chgid", "nothing", 8); o.Return != false {
		t.Errorf("%+v", o)
	}
	if o := f.run(t, "shadow.set_password", "fred", "$6$new"); o.Return != true || !strings.Contains(f.Text("/etc/shadow"), "fred:$6$new:") {
		t.Errorf("%+v: %s", o, f.Text("/etc/shadow"))
	}
	if o := f.run(t, "shadow.set_password", "nobody", "x"); o.Return != false {
		t.Errorf("%+v", o)
	}
	if err := os.Remove(f.Path("/usr/sbin/useradd")); err != nil {
		t.Fatal(err)
	}
	if o := f.run(t, "user.add", "x"); !strings.HasPrefix(value.Str(o.Return), "ERROR: cannot run useradd: ") {
		t.Errorf("%+v", o)
	}
}

// TestLikeSaltHere compares what Salt and Brine read from this machine.
func TestLikeSaltHere(t *testing.T) {
	jobs := [][]any{{"user.info", "root"}, {"user.info", "no-such"}, {"user.getent"}, {"user.list_users"}, {"user.list_groups", "root"},
		{"user.list_groups", "no-such"},
		{"user.primary_group", "root"}, {"group.info", "root"}, {"group.info", "no-such"}, {"group.getent"}, {"shadow.info", "root"}, {"shadow.list_users"},
		{"shadow.default_hash"}}
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range stocktest.Ask(t, nil, jobs...) {
		arg := make([]any, len(jobs[i])-1)
		copy(arg, jobs[i][1:])
		if got := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: j.Str("fun"), Arg: arg}); !value.Equal(got.Return, j.At("return")) {
			t.Errorf("%v: returns %s\nSalt: %s", jobs[i], value.Repr(got.Return), value.Repr(j.At("return")))
		}
	}
}
