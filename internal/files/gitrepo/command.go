package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/log/redact"
	"brine/internal/host/proc"
)

const (
	// maxText bounds the output of git, in bytes. The largest output is a list
	// of files.
	maxText = 512 << 20
	// fetchLimit bounds a fetch. Connections without traffic are closed much
	// earlier.
	fetchLimit = 2 * time.Hour
	// localLimit bounds commands that do not use the network.
	localLimit = 10 * time.Minute
)

// inherited lists the variables of this process that are passed to git: access
// to other machines, and the locations of programs and settings.
var inherited = []string{
	"PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "USER", "LOGNAME", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_CONFIG_GLOBAL",
	"GIT_CONFIG_NOSYSTEM",
	"http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
}

// settings are git settings that override those in its files.
type settings [][2]string

// environment returns the environment for git in a directory. Settings are
// passed in it rather than as arguments, which all users can see.
func environment(dir string, more settings, vars ...string) []string {
	env := []string{"LC_ALL=C", "LANGUAGE=C", "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=file:git:http:https:ssh", "GIT_OPTIONAL_LOCKS=0", "GIT_DIR=" + dir,
		"GIT_NO_REPLACE_OBJECTS=1"}
	for _, name := range inherited {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	if os.Getenv("HOME") == "" {
		env = append(env, "HOME=/")
	}
	all := append(settings{
		{"core.hooksPath", "/dev/null"}, {"core.fsmonitor", "false"}, {"core.askPass", ""}, {"safe.directory", dir}, {"gc.autoDetach", "false"},
		{"fetch.recurseSubmodules", "false"},
		{"submodule.recurse", "false"}, {"protocol.ext.allow", "never"}, {"fetch.writeCommitGraph", "false"}, {"http.lowSpeedLimit", "100"},
		{"http.lowSpeedTime", "60"},
	}, more...)
	env = append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(len(all)))
	for i, s := range all {
		n := strconv.Itoa(i)
		env = append(env, "GIT_CONFIG_KEY_"+n+"="+s[0], "GIT_CONFIG_VALUE_"+n+"="+s[1])
	}
	return append(env, vars...)
}

// toRemote returns the settings and variables for access to a remote. scratch
// is a temporary directory for a helper program.
func (r Remote) toRemote(scratch string) (address string, s settings, vars []string, err error) {
	address, user, password := r.access()
	if r.NoVerify {
		s = append(s, [2]string{"http.sslVerify", "false"})
	}
	if password != "" {
		u, err := url.Parse(address)
		if err != nil {
			return "", nil, nil, fmt.Errorf("%q is no URL", redact.Text(address))
		}
		// Only for this host, so that no redirection gets the password.
		const give = `!f() { test "$1" = get && printf 'username=%s\npassword=%s\n' "$BRINE_GIT_USER" "$BRINE_GIT_PASSWORD"; }; f`
		s = append(s, [2]string{"credential.helper", ""}, [2]string{"credential." + u.Scheme + "://" + u.Host + ".helper", give})
		vars = append(vars, "BRINE_GIT_USER="+user, "BRINE_GIT_PASSWORD="+password)
	}
	// Administrators set this variable to choose the SSH program and the known
	// hosts file.
	ssh := os.Getenv("GIT_SSH_COMMAND")
	if ssh == "" {
		ssh = "ssh"
	}
	ssh += " -oConnectTimeout=30 -oServerAliveInterval=15 -oServerAliveCountMax=4"
	if r.Auth.PrivKey != "" {
		ssh += " -oIdentitiesOnly=yes -i '" + r.Auth.PrivKey + "'"
	}
	if r.Auth.Passphrase == "" {
		return address, s, append(vars, "GIT_SSH_COMMAND="+ssh+" -oBatchMode=yes"), nil
	}
	ask := filepath.Join(scratch, "askpass")
	script := "#!/bin/sh\ncase $1 in *assphrase*) printf '%s\\n' \"$BRINE_GIT_PASSPHRASE\";; *) exit 1;; esac\n"
	if err := atomicfile.Write(ask, []byte(script), 0o700, false); err != nil {
		return "", nil, nil, err
	}
	ssh += " -oPasswordAuthentication=no -oKbdInteractiveAuthentication=no -oNumberOfPasswordPrompts=1"
	vars = append(vars, "SSH_ASKPASS="+ask, "SSH_ASKPASS_REQUIRE=force", "DISPLAY=:", "BRINE_GIT_PASSPHRASE="+r.Auth.Passphrase, "GIT_SSH_COMMAND="+ssh)
	return address, s, vars, nil
}

// runGit runs git without network access.
func runGit(ctx context.Context, dir string, stdin []byte, args ...string) ([]byte, error) {
	return runWith(ctx, environment(dir, nil), localLimit, stdin, args...)
}

func runWith(ctx context.Context, env []string, limit time.Duration, stdin []byte, args ...string) ([]byte, error) {
	res, err := proc.Run(ctx, proc.Cmd{Args: append([]string{"git"}, args...), Dir: "/", Env: env, Stdin: stdin, Timeout: limit, MaxOutput: maxText,
		DieWithParent: true})
	var start *proc.StartError
	switch {
	case errors.As(err, &start) && errors.Is(err, syscall.ENOENT):
		return nil, ErrNoGit
	case err != nil:
		return nil, err
	case res.TimedOut:
		return nil, fmt.Errorf("git %s has not ended in %v", args[0], limit)
	case res.Code != 0:
		return nil, &gitError{args[0], res.Code, reason(res.Stderr)}
	}
	return res.Stdout, nil
}

// gitError is an error reported by git.
type gitError struct {
	command string
	code    int
	text    string
}

func (e *gitError) Error() string {
	if e.text == "" {
		return fmt.Sprintf("git %s ended with %d", e.command, e.code)
	}
	return e.text
}

// reason converts the error output of git to one line.
func reason(stderr []byte) string {
	const enough = 1000
	var out []string
	for line := range strings.SplitSeq(strings.ToValidUTF8(string(stderr), "\ufffd"), "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "remote: Enumerating") && !strings.HasPrefix(line, "hint:") {
			out = append(out, line)
		}
	}
	text := redact.Text(strings.Join(out, "; "))
	if len(text) > enough {
		text = strings.ToValidUTF8(text[:enough], "") + " …"
	}
	return text
}

// Available returns ErrNoGit if the program git is missing.
func Available() error {
	if _, err := exec.LookPath("git"); err != nil {
		return ErrNoGit
	}
	return nil
}
