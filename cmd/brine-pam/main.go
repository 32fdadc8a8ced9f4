//go:build pam && cgo

// Command brine-pam asks PAM whether a name and password belong together, for
// masters whose external_auth has the system pam. It is a program of its own
// so that the others need no C library; build it with `make pam`.
//
// The package brine-pam installs it with the set-user-ID bit of root, executable by the group salt
// only, because PAM modules verify the passwords of other users for root alone.
//
// It reads SERVICE NUL NAME NUL PASSWORD NUL and ends with 0 if PAM lets the
// user in and the account is valid, with 1 if not, with 2 if it was asked
// wrongly. It says nothing.
//
// The caller chooses its environment, limits, descriptors and directory. PAM modules
// must not inherit them: with RLIMIT_FSIZE 0, for example, pam_faillock could not count failures.
package main

/*
#cgo LDFLAGS: -l:libpam.so.0
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

// The part of security/pam_appl.h that is used, so that the header need not be
// there.
struct pam_message { int msg_style; const char *msg; };
struct pam_response { char *resp; int resp_retcode; };
struct pam_conv {
	int (*conv)(int, const struct pam_message **, struct pam_response **, void *);
	void *appdata_ptr;
};
typedef struct pam_handle pam_handle_t;
extern int pam_start(const char *, const char *, const struct pam_conv *, pam_handle_t **);
extern int pam_authenticate(pam_handle_t *, int);
extern int pam_acct_mgmt(pam_handle_t *, int);
extern int pam_end(pam_handle_t *, int);

enum { SUCCESS = 0, BUFFER = 5, CONVERSATION = 19, HIDDEN = 1, VISIBLE = 2, MOST = 32 };
// An account with an empty password is not let in with any password.
enum { SILENT = 0x8000, NO_NULL_PASSWORD = 1 };

// answer gives the password to what is asked without echo, and nothing to the
// rest.
static int answer(int n, const struct pam_message **msg, struct pam_response **resp, void *password) {
	if (n <= 0 || n > MOST) return CONVERSATION;
	struct pam_response *r = calloc(n, sizeof *r);
	if (!r) return BUFFER;
	for (int i = 0; i < n; i++) {
		if (msg[i]->msg_style == HIDDEN) r[i].resp = strdup(password);
		else if (msg[i]->msg_style == VISIBLE) { free(r); return CONVERSATION; }
	}
	*resp = r;
	return SUCCESS;
}

enum { WRONGLY = 2, FILES = 1024, LEAST_FILES = 64, LEAST_MEMORY = 1 << 30, ALL_FILES = 65536 };

// limit sets a resource limit, as far as the hard limit permits without the privilege to raise it.
// With less than least, a module that counts failures could not do so, and nothing is asked.
static void limit(int what, rlim_t want, rlim_t least) {
	struct rlimit now, new = { want, want };
	if (setrlimit(what, &new) == 0) return;
	if (getrlimit(what, &now) != 0 || now.rlim_max < least) _exit(WRONGLY);
	now.rlim_cur = now.rlim_max;
	if (setrlimit(what, &now) != 0) _exit(WRONGLY);
}

// cleanse replaces what the process inherits. It runs before the runtime of Go starts, which reads
// the environment, too.
__attribute__((constructor)) static void cleanse(void) {
	static char none[] = "_=";
	// The vector stays as long as it is, because the runtime of Go looks for what follows it.
	for (char **e = environ; e && *e; e++) *e = none;
	if (clearenv() || setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1) || chdir("/")) _exit(WRONGLY);
	umask(077);
#ifdef SYS_close_range
	if (syscall(SYS_close_range, 3U, ~0U, 0U))
#endif
		for (int fd = 3; fd < ALL_FILES; fd++) close(fd);
	// A file that a module opens must not become the standard input or output.
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) == -1 && errno == EBADF && open("/dev/null", O_RDWR) != fd) _exit(WRONGLY);
	limit(RLIMIT_FSIZE, RLIM_INFINITY, RLIM_INFINITY);
	limit(RLIMIT_CPU, RLIM_INFINITY, 0);
	limit(RLIMIT_AS, RLIM_INFINITY, LEAST_MEMORY);
	limit(RLIMIT_DATA, RLIM_INFINITY, LEAST_MEMORY);
	limit(RLIMIT_NPROC, RLIM_INFINITY, 0);
	limit(RLIMIT_NOFILE, FILES, LEAST_FILES);
	limit(RLIMIT_CORE, 0, 0);
	struct itimerval never;
	memset(&never, 0, sizeof never);
	setitimer(ITIMER_REAL, &never, NULL);
	setitimer(ITIMER_VIRTUAL, &never, NULL);
	setitimer(ITIMER_PROF, &never, NULL);
	sigset_t all;
	sigemptyset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	for (int s = 1; s < NSIG; s++) signal(s, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
}

static int check(const char *service, const char *name, char *password) {
	struct pam_conv conv = { answer, password };
	pam_handle_t *h = NULL;
	int rc = pam_start(service, name, &conv, &h);
	if (rc != SUCCESS) return rc;
	rc = pam_authenticate(h, SILENT | NO_NULL_PASSWORD);
	if (rc == SUCCESS) rc = pam_acct_mgmt(h, SILENT | NO_NULL_PASSWORD);
	pam_end(h, rc);
	return rc;
}
*/
import "C"

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"time"
	"unsafe"
)

const (
	// most bounds what is read, in bytes.
	most = 64 << 10
	// readTime bounds the wait for it, and lifeTime the whole life of the process, which a module
	// may spend waiting for a second factor.
	readTime, lifeTime = 10 * time.Second, 10 * time.Minute

	failed  = 1 // PAM does not let the user in
	wrongly = 2
)

// services are the names of files in /etc/pam.d.
var services = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}$`)

func main() {
	time.AfterFunc(lifeTime, func() { os.Exit(failed) })
	os.Exit(run(os.Stdin))
}

func run(in io.Reader) int {
	late := time.AfterFunc(readTime, func() { os.Exit(wrongly) })
	b, err := io.ReadAll(io.LimitReader(in, most+1))
	late.Stop()
	words := bytes.Split(b, []byte{0})
	if err != nil || len(b) > most || len(words) != 4 || len(words[3]) > 0 || !services.Match(words[0]) || len(words[1]) == 0 {
		return wrongly
	}
	if !isName(words[1]) {
		return failed
	}
	var c [3]*C.char
	for i := range c {
		c[i] = C.CString(string(words[i]))
		defer C.free(unsafe.Pointer(c[i]))
	}
	if C.check(c[0], c[1], c[2]) != C.SUCCESS {
		return failed
	}
	return 0
}

// maxName bounds a user name in bytes; Linux permits 32, directories more.
const maxName = 256

// isName reports whether a user can have this name, which modules write to logs.
func isName(b []byte) bool {
	return len(b) <= maxName && !bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' || r == 0x7f })
}
