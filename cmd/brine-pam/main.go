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
package main

/*
#cgo LDFLAGS: -l:libpam.so.0
#include <stdlib.h>
#include <string.h>

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
	"unsafe"
)

// most bounds what is read, in bytes.
const most = 64 << 10

func main() { os.Exit(run(os.Stdin)) }

func run(in io.Reader) int {
	b, err := io.ReadAll(io.LimitReader(in, most))
	words := bytes.Split(b, []byte{0})
	// PAM modules read the environment, which the caller chose.
	os.Clearenv()
	_ = os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
	if err != nil || len(words) != 4 || len(words[3]) > 0 || len(words[0]) == 0 || len(words[1]) == 0 || bytes.ContainsRune(words[0], '/') {
		return 2
	}
	var c [3]*C.char
	for i := range c {
		c[i] = C.CString(string(words[i]))
		defer C.free(unsafe.Pointer(c[i]))
	}
	if C.check(c[0], c[1], c[2]) != C.SUCCESS {
		return 1
	}
	return 0
}
