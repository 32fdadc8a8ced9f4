package auth

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"brine/test/tools"
)

// witness replaces libpam. It writes what a PAM module finds to the directory of the library, and
// accepts the password "right".
const witness = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
extern char **environ;
struct msg { int style; const char *text; };
struct resp { char *text; int code; };
struct conv { int (*f)(int, const struct msg **, struct resp **, void *); void *data; };
static struct conv conv;
int pam_start(const char *service, const char *name, const struct conv *c, void **h) { conv = *c; *h = &conv; return 0; }
int pam_authenticate(void *h, int flags) {
	Dl_info self;
	char path[4096], copy[4096];
	if (!dladdr((void *)pam_authenticate, &self)) return 7;
	strcpy(copy, self.dli_fname);
	snprintf(path, sizeof path, "%s/seen.%d", dirname(copy), getpid());
	FILE *f = fopen(path, "w");
	if (!f) return 7;
	setvbuf(f, NULL, _IONBF, 0);
	fprintf(f, "euid %d\n", geteuid());
	for (char **e = environ; e && *e; e++) fprintf(f, "env %.60s\n", *e);
	char *cwd = getcwd(copy, sizeof copy);
	fprintf(f, "cwd %s\n", cwd ? cwd : "none");
	fprintf(f, "umask %o\n", umask(0));
	for (int fd = 0; fd < 1000; fd++) {
		struct stat s;
		if (fd == fileno(f) || fstat(fd, &s)) continue;
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, copy, sizeof copy - 1);
		copy[n < 0 ? 0 : n] = 0;
		fprintf(f, "fd %d %s\n", fd, copy);
	}
	int limits[] = {RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_CPU, RLIMIT_CORE};
	for (int i = 0; i < 4; i++) {
		struct rlimit l;
		getrlimit(limits[i], &l);
		fprintf(f, "limit %d %ld\n", limits[i], (long)l.rlim_cur);
	}
	struct sigaction act;
	sigaction(SIGCHLD, NULL, &act);
	fprintf(f, "chld %s\n", act.sa_handler == SIG_IGN ? "ignored" : "not ignored");
	fclose(f);
	struct msg m = {1, "Password: "};
	const struct msg *ms = &m;
	struct resp *r = NULL;
	if (conv.f(1, &ms, &r, conv.data) || !r || !r->text) return 19;
	int rc = strcmp(r->text, "right") ? 7 : 0;
	free(r->text);
	free(r);
	return rc;
}
int pam_acct_mgmt(void *h, int flags) { return 0; }
int pam_end(void *h, int status) { return 0; }
`

// setuidHelper is the real program as the package installs it, with another libpam.
type setuidHelper struct {
	path, seen string
	uid, gid   int
}

func newSetuidHelper(t *testing.T) *setuidHelper {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can install a program with the set-user-ID bit of root")
	}
	tools.Need(t, "gcc", "gcc")
	dir, err := os.MkdirTemp("", "brinepam") // open to the user, as t.TempDir may not be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &setuidHelper{path: filepath.Join(dir, pamHelper), seen: filepath.Join(dir, "lib"), uid: 54321, gid: 54322}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(dir, 0o755))
	must(os.Mkdir(h.seen, 0o700))
	lib := filepath.Join(h.seen, "libpam.so.0")
	compile := exec.Command("gcc", "-shared", "-fPIC", "-Wl,-soname,libpam.so.0", "-o", lib, "-x", "c", "-")
	compile.Stdin = strings.NewReader(witness)
	out, err := compile.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(os.Chmod(h.seen, 0o711))
	must(os.Chmod(lib, 0o755))
	build := exec.Command("go", "build", "-tags", "pam", "-ldflags", "-linkmode=external", "-o", h.path, "brine/cmd/brine-pam")
	build.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_LDFLAGS=-L"+h.seen+" -Wl,-rpath,"+h.seen)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(os.Chown(h.path, 0, h.gid))
	must(os.Chmod(h.path, 0o754|os.ModeSetuid))
	return h
}

// command prepares a shell script of the unprivileged user, which starts the program as $PAM.
func (h *setuidHelper) command(script, in string, env ...string) *exec.Cmd {
	c := exec.Command("/bin/sh", "-c", script)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(h.uid), Gid: uint32(h.gid)}}
	c.Dir = "/"
	c.Env = append([]string{"PATH=/usr/bin:/bin", "PAM=" + h.path}, env...)
	c.Stdin = strings.NewReader(in)
	return c
}

// run runs it, and returns the exit code, the output, and what PAM found: "" if it was not asked.
func (h *setuidHelper) run(t *testing.T, script, in string, env ...string) (code int, out, found string) {
	t.Helper()
	h.forget()
	c := h.command(script, in, env...)
	b, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), string(b), h.found()
}

func (h *setuidHelper) forget() {
	old, _ := filepath.Glob(h.seen + "/seen.*")
	for _, path := range old {
		os.Remove(path)
	}
}

func (h *setuidHelper) found() string {
	var all strings.Builder
	paths, _ := filepath.Glob(h.seen + "/seen.*")
	for _, path := range paths {
		b, _ := os.ReadFile(path)
		all.Write(b)
	}
	return all.String()
}

// TestPAMHostileCaller: whatever the environment, limits, descriptors, directory and input of the
// user who runs brine-pam with the privileges of root, PAM modules find a clean process, and no
// login is accepted that PAM has not.
func TestPAMHostileCaller(t *testing.T) {
	tools.Slow(t)
	h := newSetuidHelper(t)
	const right, wrong = "login\x00ann\x00right\x00", "login\x00ann\x00wrong\x00"
	code, out, found := h.run(t, `exec "$PAM"`, right)
	if !strings.Contains(found, "euid 0\n") {
		t.Skipf("programs in %s do not run with the set-user-ID bit: code %d, %s%s", os.TempDir(), code, out, found)
	}
	want := "euid 0\nenv PATH=/usr/sbin:/usr/bin:/sbin:/bin\ncwd /\numask 77\n"
	clean := func(found string) error {
		begin, rest, _ := strings.Cut(found, "fd 0 ")
		if begin != want {
			return fmt.Errorf("PAM finds %q", begin)
		}
		var fds []string
		limits := map[string]int{}
		for line := range strings.Lines("fd 0 " + rest) {
			var n, v int
			switch {
			case strings.HasPrefix(line, "fd "):
				fmt.Sscanf(line, "fd %d", &n)
				// The runtime of Go has its own.
				if n > 2 && !strings.Contains(line, "anon_inode:[event") && !strings.Contains(line, "/sys/fs/cgroup/") {
					return fmt.Errorf("PAM finds a descriptor of the caller: %s", line)
				}
				fds = append(fds, fmt.Sprint(n))
			case strings.HasPrefix(line, "limit "):
				fmt.Sscanf(line, "limit %d %d", &n, &v)
				limits[fmt.Sprint(n)] = v
			case strings.HasPrefix(line, "chld ") && line != "chld not ignored\n":
				return fmt.Errorf("PAM finds SIGCHLD ignored")
			}
		}
		for _, fd := range []string{"0", "1", "2"} {
			if !slices.Contains(fds, fd) {
				return fmt.Errorf("descriptor %s is closed: a module's own file would get its number", fd)
			}
		}
		fsize, files, cpu, core := limits[fmt.Sprint(syscall.RLIMIT_FSIZE)], limits[fmt.Sprint(syscall.RLIMIT_NOFILE)], limits[fmt.Sprint(syscall.RLIMIT_CPU)],
			limits[fmt.Sprint(syscall.RLIMIT_CORE)]
		if fsize != -1 || files < 256 || cpu != -1 || core != 0 {
			return fmt.Errorf("PAM finds the limits of the caller: file size %d, files %d, CPU %d, core %d", fsize, files, cpu, core)
		}
		return nil
	}
	for name, script := range map[string]string{
		"limits":      `ulimit -S -f 0; ulimit -S -n 8; ulimit -S -t 1; ulimit -S -c unlimited 2>/dev/null; exec "$PAM"`,
		"descriptors": `exec 3</etc/passwd 9<"$PAM" >&- 2>&-; exec "$PAM"`,
		"signals":     `trap '' CHLD HUP INT TERM PIPE; umask 0; d=$(mktemp -d); cd "$d"; rmdir "$d"; exec "$PAM"`,
		"environment": `LD_PRELOAD=/none.so LD_LIBRARY_PATH=/tmp LD_AUDIT=/none PATH=. IFS=/ TZ=/etc/shadow KRB5_CONFIG=/x PAM_USER=root ` +
			`GODEBUG=gctrace=1 GOGC=1 exec "$PAM" --help -test.v "$(printf '\377')"`,
		"broken environment": `umask 777; X=$(head -c 100000 /dev/zero | tr '\0' x); exec env -i "=x" "X=$X" "GOTRACEBACK=crash" "GOMAXPROCS=999999" "$PAM"`,
	} {
		in, want := wrong, 1
		if name == "descriptors" {
			in, want = right, 0
		}
		code, out, found := h.run(t, script, in)
		if code != want || out != "" {
			t.Errorf("%s: exit code %d, want %d: %.300s", name, code, want, out)
		}
		if err := clean(found); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Root without CAP_SYS_RESOURCE cannot raise a hard limit. Then PAM is not asked.
	for _, script := range []string{`ulimit -f 0; exec "$PAM"`, `ulimit -n 8; exec "$PAM"`} {
		if code, out, found := h.run(t, script, right); code != 2 && (code != 0 || clean(found) != nil) || code == 2 && found != "" || out != "" {
			t.Errorf("%s: exit code %d, %s%s", script, code, out, found)
		}
	}
	// Nothing of this reaches PAM.
	long := strings.Repeat("x", 1<<20)
	refused := []string{"a name with lines", "a name with an escape", "a long name"}
	for name, in := range map[string]string{
		"nothing": "", "zeros": strings.Repeat("\x00", 1<<16), "no end": "login\x00ann\x00right", "too much": right + "x",
		"a long password": "login\x00ann\x00" + long + "\x00", "a long name": "login\x00" + long[:300] + "\x00right\x00",
		"a very long name": "login\x00" + long + "\x00right\x00",
		"a long service":   long + "\x00ann\x00right\x00", "a path": "../login\x00ann\x00right\x00",
		"more after the limit": "login\x00ann\x00" + strings.Repeat("x", 64<<10-len("login.ann..")) + "\x00" + right,
		"a directory":          "..\x00ann\x00right\x00", "a hidden service": ".login\x00ann\x00right\x00",
		"a service of bytes": "\xff\xfe\x00ann\x00right\x00", "a long service name": strings.Repeat("s", 300) + "\x00ann\x00right\x00",
		"a name with lines": "login\x00ann\nroot\x00right\x00", "a name with an escape": "login\x00ann\x1b[2J\x00right\x00", "no name": "login\x00\x00right\x00",
	} {
		want := 2
		if slices.Contains(refused, name) {
			want = 1
		}
		if code, out, found := h.run(t, `exec "$PAM"`, in); code != want || out != "" || found != "" {
			t.Errorf("%s: exit code %d: %.300s%s", name, code, out, found)
		}
	}
	if code, out, found := h.run(t, `exec "$PAM" <&-`, right); code != 2 || out != "" || found != "" {
		t.Errorf("closed input: exit code %d: %s%s", code, out, found)
	}
	// Binary passwords are passwords.
	if code, out, found := h.run(t, `exec "$PAM"`, "login\x00\xff\xfeann\x00\x01\xff\n\x00"); code != 1 || out != "" || found == "" {
		t.Errorf("binary input: exit code %d: %s%s", code, out, found)
	}
	// Several at once do not disturb each other, nor does one that is killed.
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			in, want := right, 0
			if i%2 == 0 {
				in, want = wrong, 1
			}
			c := h.command(`exec "$PAM"`, in)
			if out, _ := c.CombinedOutput(); c.ProcessState.ExitCode() != want || len(out) > 0 {
				t.Errorf("one of several: %v, want %d: %s", c.ProcessState, want, out)
			}
		})
	}
	wg.Wait()
	c := h.command(`exec "$PAM"`, "")
	c.Stdin = nil
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	in.Write([]byte(right[:5]))
	time.AfterFunc(100*time.Millisecond, func() { c.Process.Signal(syscall.SIGTERM) })
	if c.Wait(); c.ProcessState.Success() {
		t.Error("a request without an end that was killed succeeds")
	}
	// Others cannot run it.
	other := h.command(`exec "$PAM"`, right)
	other.SysProcAttr.Credential.Gid = 54329
	if out, _ := other.CombinedOutput(); other.ProcessState.ExitCode() != 126 {
		t.Errorf("a user who is not of the group: %v: %s", other.ProcessState, out)
	}
}
