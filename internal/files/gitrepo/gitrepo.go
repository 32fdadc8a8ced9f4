// Package gitrepo keeps copies of remote git repositories in a cache directory
// that several processes, on several machines, may share. It fetches them with
// git(1), resolves branches and tags to commits, and returns trees and contents.
// Its users decide what is served of them: the file server backend gitfs and the
// pillar source git.
//
// # Contract
//
// All users of a cache directory serve the same commits: the state that a Clone
// serves is in one file, served.json, which is replaced atomically after a
// successful fetch. A fetch that fails, or whose process dies, does not change
// what is served. A broken copy is fetched again into another directory, and
// replaced when that is complete.
//
// One process fetches at a time; see Lease. A process that has lost its lease
// cannot change what is served.
//
// The remote is hostile. Only the transports file, git, http, https and ssh are
// used, whatever a server answers. No hooks, filters or submodules are run or
// fetched. Names from a remote can never become options of git. File names that
// lead elsewhere are omitted. Passwords are passed to git in its environment,
// only for the host of the remote.
package gitrepo

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"brine/internal/base/log/redact"
)

// Remote is a repository to copy.
type Remote struct {
	// ID is the remote's entry in the configuration, URL its location.
	ID, URL string
	// Refspecs determine what is fetched and under which names; nil means
	// UsualRefspecs.
	Refspecs []string
	// NoVerify accepts any certificate of an https server.
	NoVerify bool
	Auth     Auth
}

// Auth is the authentication; the zero value leaves it to git.
type Auth struct {
	// User and Password are for http and https. InsecureAuth lets them be
	// sent without encryption.
	User, Password string
	InsecureAuth   bool
	// PrivKey and PubKey are key files for ssh, and Passphrase is that of the
	// private key.
	PrivKey, PubKey, Passphrase string
}

// UsualRefspecs returns Salt's default: all branches and tags.
func UsualRefspecs() []string {
	return []string{"+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"}
}

// Check validates the settings of a remote.
func (r Remote) Check() error {
	scheme, err := r.scheme()
	if err != nil {
		return err
	}
	for _, s := range r.Refspecs {
		if strings.HasPrefix(s, "-") || s == "" || strings.ContainsFunc(s, unfit) || strings.Contains(s, " ") {
			return fmt.Errorf("%q is no refspec", s)
		}
	}
	a := r.Auth
	switch scheme {
	case "http", "https":
		if (a.User == "") != (a.Password == "") {
			return fmt.Errorf("the remote %s needs both user and password", redact.Text(r.ID))
		}
		if scheme == "http" && a.Password != "" && !a.InsecureAuth {
			return fmt.Errorf("the password of the remote %s would be sent without encryption: use https, or set insecure_auth", redact.Text(r.ID))
		}
	case "ssh":
		if a.PrivKey == "" && a.PubKey != "" {
			return fmt.Errorf("the remote %s has a pubkey but no privkey", redact.Text(r.ID))
		}
		for _, f := range []string{a.PrivKey, a.PubKey} {
			if f == "" {
				continue
			}
			if st, err := os.Stat(f); err != nil || !st.Mode().IsRegular() {
				return fmt.Errorf("the key file %s of the remote %s is not there", f, redact.Text(r.ID))
			}
		}
		if strings.ContainsAny(a.PrivKey, "'\n") {
			return fmt.Errorf("the name of the key file %q cannot be used", a.PrivKey)
		}
	}
	return nil
}

func unfit(c rune) bool { return c < ' ' || c == 0x7f }

var scp = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:[A-Za-z0-9_.][^@:/\s]*@)?([A-Za-z0-9_.][^@:/\s]*|\[[0-9A-Fa-f:.]+\]):`)
})

// scheme returns the transport of the URL.
func (r Remote) scheme() (string, error) {
	u := r.URL
	bad := fmt.Errorf("%q is no address of a git repository: it begins with file, git, http, https or ssh, is a full path, or has the form USER@HOST:PATH",
		redact.Text(u))
	if u == "" || strings.HasPrefix(u, "-") || strings.ContainsFunc(u, unfit) {
		return "", bad
	}
	if filepath.IsAbs(u) {
		return "file", nil
	}
	if scheme, rest, ok := strings.Cut(u, "://"); ok {
		scheme = strings.ToLower(scheme)
		if scheme == "git+ssh" || scheme == "ssh+git" {
			scheme = "ssh"
		}
		if !slices.Contains([]string{"file", "git", "http", "https", "ssh"}, scheme) || rest == "" || strings.HasPrefix(rest, "-") ||
			strings.Contains(rest, "@-") {
			return "", bad
		}
		return scheme, nil
	}
	if strings.Contains(u, "::") || !scp().MatchString(u) {
		return "", bad
	}
	return "ssh", nil
}

// access returns the URL without a password, and the password separately. A
// password in the URL would be visible in the list of processes.
func (r Remote) access() (address, user, password string) {
	address, user, password = r.URL, r.Auth.User, r.Auth.Password
	u, err := url.Parse(r.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User == nil {
		return address, user, password
	}
	if password == "" {
		user = u.User.Username()
		password, _ = u.User.Password()
	}
	u.User = nil
	return u.String(), user, password
}

// Error is an error of git or of a remote.
type Error struct {
	Remote string
	Doing  string
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("cannot %s the git remote %s: %v", e.Doing, redact.Text(e.Remote), e.Err)
}
func (e *Error) Unwrap() error { return e.Err }

// ErrNoGit means that the program git is missing.
var ErrNoGit = errors.New("there is no program git on this machine: install it (apt-get install git, dnf install git, apk add git) to use git repositories")

// errBroken means that data is missing in a copy.
var errBroken = errors.New("the copy in the cache is broken")
