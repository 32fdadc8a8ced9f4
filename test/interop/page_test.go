package interop

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// page is docs/migrating.md.
const page = "../../docs/migrating.md"

// block is a block of commands of the page.
type block struct {
	section string // the last heading
	machine string // from the line "# on MACHINE"
	lines   []string
	at      int // line number of the first command
}

// readPage returns the blocks of commands, in order: those that are indented.
func readPage(t *testing.T) []block {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	section, open := "", false
	for i, line := range strings.Split(string(text), "\n") {
		code, indented := strings.CutPrefix(line, "    ")
		machine, begins := strings.CutPrefix(code, "# on ")
		switch {
		case strings.HasPrefix(line, "#"):
			section, open = strings.TrimLeft(line, "# "), false
		case !indented:
			open = false
		case begins:
			blocks, open = append(blocks, block{section: section, machine: machine, at: i + 2}), true
		case !open:
			t.Errorf("%s:%d: a block of commands begins with a line # on MACHINE", page, i+1)
		case !strings.HasPrefix(code, "#"):
			last := &blocks[len(blocks)-1]
			last.lines = append(last.lines, code)
		}
	}
	return blocks
}

// machine is a daemon with the files of its host that commands of the page name.
type machine struct {
	*node
	name string
	// unit reports whether systemd has loaded Brine's unit file.
	unit bool
	// stopped reports whether systemctl has stopped the daemon.
	stopped bool
}

// service is the name of the daemon's unit.
func (m *machine) service() string { return m.Program }

// hasUnit reports whether Brine's unit file is installed.
func (m *machine) hasUnit() bool {
	_, err := os.Stat(m.Path("etc/systemd/system/" + m.service() + ".service"))
	return err == nil
}

// kindOf returns which program a shell finds.
func (m *machine) kindOf(program string) kind {
	if _, err := os.Stat(m.Path("usr/local/bin/" + program)); err == nil {
		return brine
	}
	return stock
}

// asHost moves the configuration to etc/salt of the node's directory, so that
// all paths below /etc/salt are there.
func asHost(t *testing.T, name string, n *node) *machine {
	t.Helper()
	file := strings.TrimPrefix(n.Program, "salt-")
	for _, dir := range []string{"etc/salt/" + file + ".d", "etc/systemd/system", "usr/local/bin", "root", "var/cache/salt"} {
		must(t, os.MkdirAll(n.Path(dir), 0o755))
	}
	must(t, os.Rename(n.Path(file), n.Path("etc/salt/"+file)))
	for _, f := range []string{file, file + ".d"} {
		must(t, os.Symlink("etc/salt/"+f, n.Path(f)))
	}
	return &machine{node: n, name: name}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shell runs commands of the page on the machines of a fleet.
type shell struct {
	t *testing.T
	// dry is true if daemons do not run: then the options and functions of programs are
	// checked, and files are copied and removed all the same.
	dry      bool
	pki      func(x *machine) string // a master's directory of keys
	machines []*machine
	build    string // the directory of the build machine
	// oneEach is true if stock minions answer to one of the masters only, so that a ping at
	// another one fails.
	oneEach bool
	// down are the ids of minions that do not run.
	down []string
}

// newShell prepares the build machine: Brine's programs are files with these names there.
func newShell(t *testing.T, dry bool, pki func(x *machine) string, machines ...*machine) *shell {
	t.Helper()
	s := &shell{t: t, dry: dry, pki: pki, machines: machines, build: daemontest.ShortDir(t)}
	must(t, os.MkdirAll(filepath.Join(s.build, "bin"), 0o755))
	for _, name := range programs {
		must(t, os.WriteFile(filepath.Join(s.build, "bin", name), []byte("#!/bin/sh\n"), 0o755))
	}
	must(t, os.CopyFS(filepath.Join(s.build, "packaging"), os.DirFS("../../packaging")))
	return s
}

// programs are the names of Brine's programs.
var programs = []string{"brine", "salt", "salt-master", "salt-minion", "salt-key", "salt-call", "salt-run", "salt-cp", "salt-api"}

// run runs a block, on each machine that it is for.
func (s *shell) run(b block) {
	s.t.Helper()
	for _, m := range s.on(b) {
		for i, line := range b.lines {
			s.line(m, line, fmt.Sprintf("%s:%d: %s", page, b.at+i, line))
		}
	}
}

// on returns the machines that a block is for; nil is the build machine.
func (s *shell) on(b block) (on []*machine) {
	s.t.Helper()
	if b.machine == "the build machine" {
		return []*machine{nil}
	}
	for _, m := range s.machines {
		if b.machine == m.name || b.machine == "each master" && m.Program == "salt-master" {
			on = append(on, m)
		}
	}
	if len(on) == 0 {
		s.t.Fatalf("%s:%d: there is no machine %s", page, b.at, b.machine)
	}
	return on
}

// paths are the directories that a command may name.
var paths = regexp.MustCompile(`(^|[\s:='"(])(/(?:etc/salt|etc/systemd/system|var/cache/salt|root|opt/brine|usr/local/bin)\b)`)

// otherPath is an absolute path.
var otherPath = regexp.MustCompile(`(?:^|[\s:='"(])(/[\w.-]+(?:/[\w.-]+)*)`)

// line runs one line of a block on a machine.
func (s *shell) line(m *machine, line, where string) {
	s.t.Helper()
	line, _, _ = strings.Cut(line, "  # ")
	for _, p := range otherPath.FindAllStringSubmatch(line, -1) {
		if !paths.MatchString(p[1]) {
			s.t.Fatalf("%s: the test does not know the path %s", where, p[1])
		}
	}
	words := shellWords(line)
	switch {
	case m == nil:
		s.onBuild(words, where)
		return
	case words[0] == "hash" && line == "hash -r":
		return
	case words[0] == "systemctl":
		s.systemctl(m, words[1:], where)
		return
	case slices.Contains([]string{"cp", "rm", "mv", "mkdir", "tar", "sed", "cd", "chmod", "grep", "test"}, words[0]):
		s.files(m.Dir, paths.ReplaceAllString(line, "${1}"+m.Dir+"${2}"), where)
		return
	}
	if len(words) > 4 && words[0] == "runuser" && words[1] == "-u" && words[3] == "--" {
		words = words[4:] // the daemons of the test run as the user of the test
	}
	to := ""
	if n := len(words); n > 2 && words[n-2] == ">" {
		to, words = words[n-1], words[:n-2]
	}
	program, ours := strings.CutPrefix(words[0], "/opt/brine/bin/")
	if !slices.Contains(programs, program) {
		s.t.Fatalf("%s: the test does not know the command %s", where, program)
	}
	k := m.kindOf(program)
	if ours {
		_, err := os.Stat(m.Path("opt/brine/bin/" + program))
		must(s.t, err)
		k = brine
	}
	if program == "brine" && k != brine {
		s.t.Fatalf("%s: Brine's programs are not installed on %s", where, m.name)
	}
	for i, w := range words {
		words[i] = paths.ReplaceAllString(w, "${1}"+m.Dir+"${2}")
	}
	out := s.program(m, k, program, words[1:], where)
	if to != "" {
		must(s.t, os.WriteFile(paths.ReplaceAllString(to, "${1}"+m.Dir+"${2}"), []byte(out), 0o600))
	}
}

// onBuild runs a line on the build machine.
func (s *shell) onBuild(words []string, where string) {
	s.t.Helper()
	switch {
	case slices.Equal(words, []string{"make", "build"}):
		makefile, err := os.ReadFile("../../Makefile")
		must(s.t, err)
		if !regexp.MustCompile(`(?m)^build:`).Match(makefile) {
			s.t.Fatalf("%s: Makefile has no target build", where)
		}
	case words[0] == "tar":
		s.files(s.build, strings.Join(words, " "), where)
	case len(words) == 3 && words[0] == "scp": // and the same for all others
		_, dir, ok := strings.Cut(words[2], ":")
		if !ok {
			s.t.Fatalf("%s: scp to no machine", where)
		}
		for _, m := range s.machines {
			s.files(s.build, fmt.Sprintf("cp %s %s", words[1], m.Path(dir)), where)
		}
	default:
		s.t.Fatalf("%s: the test does not know the command %s", where, words[0])
	}
}

// files runs a line that copies, moves or removes files.
func (s *shell) files(dir, line, where string) {
	s.t.Helper()
	c := exec.CommandContext(s.t.Context(), "bash", "-e", "-c", line)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v: %s", where, err, out)
	}
}

// systemctl stops and starts the daemon, and reads unit files, as systemd does.
func (s *shell) systemctl(m *machine, args []string, where string) {
	s.t.Helper()
	if slices.Equal(args, []string{"daemon-reload"}) {
		m.unit = m.hasUnit()
		return
	}
	if len(args) != 2 || args[1] != m.service() || !slices.Contains([]string{"stop", "start", "restart"}, args[0]) {
		s.t.Fatalf("%s: the test does not know it", where)
	}
	if m.unit != m.hasUnit() {
		s.t.Fatalf("%s: systemctl daemon-reload is missing", where)
	}
	m.stopped = args[0] == "stop"
	if s.dry {
		if m.Program == "salt-master" && args[0] != "stop" {
			must(s.t, os.MkdirAll(s.pki(m), 0o700)) // as a master does
		}
		return
	}
	if args[0] != "start" {
		// To the daemon alone: children of stock daemons end with it.
		m.Signal(syscall.SIGTERM)
		m.Wait(time.Minute)
		m.Kill()
	}
	if args[0] != "stop" {
		m.Kind = stock
		if m.unit {
			unit := m.Read("etc/systemd/system/" + m.service() + ".service")
			if m.kindOf(m.service()) != brine || !strings.Contains(unit, "\nExecStart=/usr/local/bin/"+m.service()+"\n") {
				s.t.Fatalf("%s: the unit file does not start Brine's program", where)
			}
			m.Kind = brine
		}
		m.Start()
	}
}

// program runs a program of Salt's or Brine's, and returns what it prints.
func (s *shell) program(m *machine, k kind, program string, args []string, where string) string {
	s.t.Helper()
	if s.dry {
		s.known(program, args, where)
		return ""
	}
	var said string
	try := func() error {
		ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
		defer cancel()
		line := append([]string{"-c", m.Dir}, args...)
		if program == "brine" { // its first argument is the name of a program
			line = append(slices.Clone(args), "-c", m.Dir)
		}
		name := program
		if program == "brine" {
			name, line = line[0], line[1:]
		}
		var out, errs bytes.Buffer
		c := k.Command(ctx, s.t, name, line...)
		c.Stdout, c.Stderr = &out, &errs
		err := c.Run()
		said = out.String()
		if err != nil && !s.onlyDown(said) && (!s.oneEach || program != "salt") {
			return fmt.Errorf("%w: %s%s", err, said, errs.String())
		}
		return nil
	}
	if slices.Contains([]string{"salt", "salt-run", "salt-call"}, program) {
		eventually.Nil(s.t, stockLimit, where, try) // minions come back when their master has started
	} else if err := try(); err != nil {
		s.t.Fatalf("%s: %v", where, err)
	}
	s.t.Logf("%s (%s)\n%s", where, k, cutText(said))
	return said
}

// onlyDown reports whether the output of a program that failed is that of a ping which all
// minions but those that are down have answered.
func (s *shell) onlyDown(out string) bool {
	if len(s.down) == 0 || !strings.Contains(out, "True") {
		return false
	}
	for _, m := range s.machines {
		if m.Program == "salt-minion" && !strings.Contains(out, m.name+":\n    True") {
			return false
		}
	}
	return true
}

// known checks that Brine's program has the options, subcommands and functions of a line.
func (s *shell) known(program string, args []string, where string) {
	s.t.Helper()
	name, rest := program, args
	if program == "brine" {
		name, rest = args[0], args[1:]
	}
	sub := ""
	if name == "migrate" || name == "cluster" || name == "ha" {
		sub = rest[0]
	}
	help := append(slices.Clone(rest), "--help")
	out, err := brine.Command(s.t.Context(), s.t, name, help...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Usage: ") {
		s.t.Fatalf("%s: %v: %s", where, err, out)
	}
	if all, err := brine.Command(s.t.Context(), s.t, name, "--help").CombinedOutput(); err != nil || sub != "" && !strings.Contains(string(all), sub) {
		s.t.Fatalf("%s: there is no %s: %s", where, sub, all)
	}
	reference := map[string]string{"salt": "modules", "salt-call": "modules", "salt-run": "runners"}[program]
	if reference == "" {
		return
	}
	for _, a := range args {
		if mod, _, ok := strings.Cut(a, "."); ok && regexp.MustCompile(`^[a-z]+\.[a-z_]+$`).MatchString(a) {
			text, err := os.ReadFile("../../docs/reference/" + reference + "/" + mod + ".md")
			if err != nil || !strings.Contains(string(text), "\n## "+a+"\n") {
				s.t.Fatalf("%s: there is no %s: %v", where, a, err)
			}
			return
		}
	}
	s.t.Fatalf("%s: no function", where)
}
