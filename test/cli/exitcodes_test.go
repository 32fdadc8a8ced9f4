package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// ending is a command that ends as a row of docs/exit-codes.md describes.
type ending struct {
	program string
	// line are its arguments in shell syntax. BOSS, CALL, DOWN and so on are directories with a
	// configuration.
	line string
	// code and strict are the exit codes without and with --strict-exit; -1 means those of the row.
	code, strict int
	// cut, if set, is the output after which the program gets Ctrl-C.
	cut string
	// This runs the program as a user without permission to read everything.
	nobody bool
}

func as(program string, lines ...string) []ending {
	var out []ending
	for _, l := range lines {
		out = append(out, ending{program: program, line: l, code: -1, strict: -1})
	}
	return out
}

func with(code, strict int, program string, lines ...string) []ending {
	out := as(program, lines...)
	for i := range out {
		out[i].code, out[i].strict = code, strict
	}
	return out
}

func join(all ...[]ending) []ending {
	var out []ending
	for _, l := range all {
		out = append(out, l...)
	}
	return out
}

func cutAt(text string, all []ending) []ending {
	for i := range all {
		all[i].cut = text
	}
	return all
}

// endings are the commands for each row, by the text of its first two columns.
func endings() map[string][]ending {
	unreadable := join(as("salt", "-c SECRET alpha test.ping"), as("salt-run", "-c SECRET test.arg"), as("salt-key", "-c SECRET -L"),
		as("salt-cp", "-c SECRET alpha BOSS/master /nonexistent"), as("salt-call", "-c SECRET --local test.ping"),
		as("salt-master", "-c SECRET"), as("salt-minion", "-c SECRET"))
	for i := range unreadable {
		unreadable[i].nobody = true
	}
	return map[string][]ending{
		"all: fine": join(as("salt", "-c BOSS alpha test.ping"), as("salt-run", "-c BOSS test.arg"), as("salt-key", "-c BOSS -L"),
			as("salt-cp", "-c BOSS alpha BOSS/master CALL/copy"), as("salt-call", "-c CALL test.ping"),
			as("salt-master", "-c BOSS --check-config"), as("salt-minion", "-c CALL --check-config")),
		"all: the command line is wrong": join(as("salt", "--nope", "-c BOSS -t x alpha test.ping"), as("salt-run", "--nope"), as("salt-key", "--nope"),
			as("salt-cp", "--nope"), as("salt-call", "--nope"), as("salt-master", "--nope"), as("salt-minion", "--nope")),
		"all: the configuration may not be read": unreadable,
		"all: Ctrl-C while waiting (--hard-crash: 1)": join(
			cutAt("Executing job", as("salt", "-c BOSS -v -t 60 alpha test.sleep 60")), cutAt("jid:", as("salt-run", "-c BOSS --show-jid test.sleep 60")),
			cutAt("DEBUG", as("salt-call", "-c CALL --local -l debug test.sleep 60")),
			cutAt("DEBUG", as("salt-cp", "-c BOSS -l debug -t 60 gamma BOSS/master CALL/copy")),
			cutAt("Executing job", with(1, 1, "salt", "-c BOSS --hard-crash -v -t 60 alpha test.sleep 60")),
			cutAt("jid:", with(1, 1, "salt-run", "-c BOSS --hard-crash --show-jid test.sleep 60"))),
		"salt: a minion returned a retcode other than 0, or did not return": as("salt", "-c BOSS alpha test.retcode 3", "-c BOSS * cmd.run 'exit 3'",
			"-c BOSS gamma test.ping", "-c BOSS alpha no.such", "-c BOSS alpha test.echo"),
		"salt -b: a minion returned a retcode other than 0": with(5, 5, "salt", "-c BOSS -b 1 -L alpha,beta cmd.run 'exit 5'",
			"-c BOSS --batch-safe-limit=2 -L alpha,beta cmd.run 'exit 5'"),
		"salt: no minion matches, a nodegroup contains itself, or the authentication system is unknown": as("salt", "-c BOSS nobody test.ping",
			"-c BOSS -a nope --username=u --password=p alpha test.ping"),
		"salt --async, -b: no minion matches": as("salt", "-c BOSS --async nobody test.ping", "-c BOSS -b 1 nobody test.ping"),
		"salt: target or function is missing": as("salt", "-c BOSS", "-c BOSS alpha"),
		"salt: a function returned False":     as("salt", "-c BOSS alpha test.false"),
		"salt --static: a minion returned a retcode other than 0, or did not return": as("salt", "-c BOSS --static --out=json alpha test.retcode 3",
			"-c BOSS --static -L alpha,gamma test.ping"),
		"salt --hide-timeout, -b: a minion did not return": as("salt", "-c BOSS --hide-timeout -L alpha,gamma test.ping",
			"-c BOSS -b 5 -L alpha,gamma test.ping"),
		"salt: the nodegroup is unknown, or the master refuses the job for another reason": as("salt", "-c BOSS -N nope test.ping",
			"-c BOSS -C 'N@nope' test.ping"),
		"salt: authentication or authorization is refused":      as("salt", "-c BOSS -a pam --username=u --password=p alpha test.ping"),
		"salt: the master cannot be reached or does not answer": as("salt", "-c DOWN alpha test.ping"),
		"salt-run: the function failed": join(as("salt-run", "-c BOSS error.error Exception"),
			with(7, 7, "salt-run", "-c BOSS salt.cmd test.echo '{retcode: 7}'")),
		"salt-run: the master cannot be reached":                      as("salt-run", "-c DOWN manage.present"),
		"salt-run: there is no such function":                         as("salt-run", "-c BOSS no.such"),
		"salt-run: wrong arguments":                                   as("salt-run", "-c BOSS jobs.lookup_jid", "-c BOSS test.sleep 1 2 3"),
		"salt-run: the function returned False":                       as("salt-run", "-c BOSS salt.cmd test.false"),
		"salt-run: the master does not take an order for the cluster": as("salt-run", "-c BOSS --cluster test.arg"),
		"salt-run: authentication or authorization is refused":        as("salt-run", "-c BOSS -a pam --username=u --password=p test.arg"),
		"salt-call: retcode other than 0, wrong arguments, an error of the function": as("salt-call", "-c CALL test.retcode 3", "-c CALL test.echo",
			"-c CALL test.exception x",
			"-c CALL cmd.run id runas=no-such-user", "-c CALL --local state.apply nosuch"),
		"salt-call --retcode-passthrough: retcode other than 0": with(3, 3, "salt-call",
			"-c CALL --retcode-passthrough test.retcode 3"),
		"salt-call: there is no such function":                                       as("salt-call", "-c CALL no.such"),
		"salt-call: the function returned False":                                     as("salt-call", "-c CALL test.false"),
		"salt-call: the master has not accepted the key":                             as("salt-call", "-c PENDING test.ping"),
		"salt-call: the master cannot be reached, or its key is not the one on file": as("salt-call", "-c LOST test.ping", "-c OTHERKEY test.ping"),
		"salt-call, salt-minion: no master has the fingerprint that master_finger demands": join(as("salt-call", "-c FINGER test.ping"),
			as("salt-minion", "-c FINGER")),
		"salt-call; salt-minion with rejected_retry: False: all masters have rejected the key": join(as("salt-call", "-c REJECTED test.ping"),
			as("salt-minion", "-c REJECTED")),
		"salt-call -d: more than one name":                               as("salt-call", "-c CALL -d test.ping test.echo"),
		"salt-key --eauth: authentication or authorization is refused":   as("salt-key", "-c BOSS --eauth=pam --username=u --password=p -L"),
		"salt-key: Ctrl-C at a question":                                 cutAt("Proceed?", as("salt-key", "-c BOSS -d alpha")),
		"daemons: the ports cannot be bound, or the daemon runs already": as("salt-master", "-c BOSS", "-c TAKEN"),
		"daemons, salt-key: there is no user of the option user":         join(as("salt-master", "-c NOUSER"), as("salt-key", "-c BOSS -u no-such-user -L")),
	}
}

// codesTable reads the table of docs/exit-codes.md.
func codesTable(t *testing.T) map[string][2]int {
	t.Helper()
	text, err := os.ReadFile("../../docs/exit-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	number := regexp.MustCompile(`^\d+`)
	rows := map[string][2]int{}
	_, table, _ := strings.Cut(string(text), "|---|---|---|---|\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 {
			break
		}
		var codes [2]int
		for i := range codes {
			codes[i] = -1 // other words, such as "the highest"
			if n := number.FindString(strings.TrimSpace(cells[2+i])); n != "" {
				codes[i], _ = strconv.Atoi(n)
			}
		}
		clean := func(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, "`", "")) }
		rows[clean(cells[0])+": "+clean(cells[1])] = codes
	}
	return rows
}

// TestExitCodes ends the programs in every way that docs/exit-codes.md lists.
func TestExitCodes(t *testing.T) {
	master, alpha := fleet(t, daemontest.Brine, daemontest.Brine)
	directories := exitDirectories(t, master, alpha)
	rows, all := codesTable(t), endings()
	for name := range all {
		if _, ok := rows[name]; !ok {
			t.Errorf("docs/exit-codes.md has no row %q", name)
		}
	}
	for name, codes := range rows {
		if len(all[name]) == 0 {
			t.Errorf("nothing shows the row %q", name)
		}
		for _, e := range all[name] {
			if e.code < 0 {
				e.code, e.strict = codes[0], codes[1]
			}
			t.Run(name+"/"+e.program+" "+e.line, func(t *testing.T) {
				t.Parallel()
				for opt, want := range map[string]int{"": e.code, "--strict-exit": e.strict} {
					if opt != "" && !takesStrict(e.program) {
						continue
					}
					if got, said := e.run(t, directories, opt); got != want {
						t.Errorf("%s %s %s: code %d, want %d\n%s", e.program, e.line, opt, got, want, said)
					}
				}
			})
		}
	}
}

// takesStrict reports whether a program has the option --strict-exit.
func takesStrict(program string) bool {
	return program == "salt" || program == "salt-run" || program == "salt-call"
}

func (e ending) run(t *testing.T, directories *strings.Replacer, opt string) (code int, text string) {
	t.Helper()
	var args []string
	if opt != "" {
		args = append(args, opt)
	}
	for _, w := range words(e.line) {
		args = append(args, directories.Replace(w))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	c := daemontest.Brine.Command(ctx, t, e.program, args...)
	c.WaitDelay = 5 * time.Second
	if e.nobody && os.Geteuid() == 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		c.Path = directories.Replace("OPEN/brine")
		c.Dir = "/"
	}
	said := &transcript{}
	stdin, err := c.StdinPipe() // stays open without an answer
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if e.cut != "" {
		said.until, said.then = e.cut, func() { _ = c.Process.Signal(syscall.SIGINT) }
	}
	c.Stdout, c.Stderr = said, said
	err = c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), said.String()
}

// transcript stores the output of a program, and calls a function once it contains a certain text.
type transcript struct {
	until string
	then  func()

	mu   sync.Mutex
	text strings.Builder
}

func (s *transcript) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(b)
	if s.then != nil && strings.Contains(s.text.String(), s.until) {
		s.then()
		s.then = nil
	}
	return len(b), nil
}

func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// exitDirectories creates the directories that the lines name.
func exitDirectories(t *testing.T, master, alpha *daemontest.Node) *strings.Replacer {
	t.Helper()
	downMinion(t, master)

	// A master that accepts no minion, and has rejected one.
	strictHost := daemontest.Host()
	strict := daemontest.NewMaster(t, daemontest.Brine, "strict", strictHost, "").Start()
	minion := func(id, host, more string) *daemontest.Node {
		return daemontest.NewMinion(t, daemontest.Brine, id, []string{host}, more)
	}
	pending := minion("pending", strictHost, "")
	rejected := minion("rejected", strictHost, "rejected_retry: False\n")
	rejected.Run(daemontest.Brine, "salt-call", "test.ping")
	eventually.Nil(t, 60*time.Second, "the key is rejected", func() error {
		out, errs, _ := strict.Run(daemontest.Brine, "salt-key", "-y", "-r", "rejected")
		if !strings.Contains(out, "rejected.") {
			return fmt.Errorf("%s%s", out, errs)
		}
		return nil
	})
	lost := minion("lost", "127.0.0.1", "master_tries: 1\nauth_tries: 1\nauth_timeout: 1\n")
	lost.Write("minion", strings.Replace(lost.Read("minion"), "master_port: 24506", "master_port: 1", 1))
	other := minion("other", master.Host, "")
	new(field).write(t, other.Path("etc/salt/pki/minion/minion_master.pub"), pem)
	finger := minion("finger", master.Host, "master_finger: 'ab:"+strings.Repeat("cd:", 30)+"ef'\n")

	down := daemontest.NewMaster(t, daemontest.Brine, "down", daemontest.Host(), "timeout: 1\n")
	nobody := daemontest.NewMaster(t, daemontest.Brine, "nouser", daemontest.Host(), "")
	nobody.Write("master", strings.Replace(nobody.Read("master"), "user: root", "user: no-such-user", 1))
	taken := daemontest.NewMaster(t, daemontest.Brine, "taken", master.Host, "")

	// A configuration without read permission, and the program in a directory where all may run it.
	secret := daemontest.ShortDir(t)
	for _, name := range []string{"master", "minion"} {
		if err := os.WriteFile(filepath.Join(secret, name), []byte("root_dir: "+secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(secret, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	open := daemontest.ShortDir(t)
	for _, dir := range []string{secret, open} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyProgram(t, daemontest.Brine.Command(t.Context(), t, "salt").Path, filepath.Join(open, "brine"))
	return strings.NewReplacer("BOSS", master.Dir, "CALL", alpha.Dir, "PENDING", pending.Dir, "REJECTED", rejected.Dir, "LOST", lost.Dir,
		"OTHERKEY", other.Dir, "FINGER", finger.Dir, "DOWN", down.Dir, "NOUSER", nobody.Dir, "TAKEN", taken.Dir, "SECRET", secret, "OPEN", open)
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
