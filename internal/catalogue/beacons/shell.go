package beacons

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"brine/internal/host/account"
	"brine/internal/host/process"
	"brine/internal/py/value"
)

// Bounds of the beacon sh.
const (
	maxTraces   = 500    // maximum number of traced shells
	maxCommands = 10_000 // maximum number of queued commands
	maxTrace    = 64 << 10
)

// tracer follows shells with strace, one process for each, as Salt does.
type tracer struct {
	program string

	mu       sync.Mutex
	traced   map[int]*exec.Cmd
	commands []*value.Dict
	lost     int
	err      error // why the last strace ended
	wg       sync.WaitGroup
}

// Close ends all traces. The shells continue.
func (t *tracer) Close() error {
	t.mu.Lock()
	for _, c := range t.traced {
		c.Process.Kill()
	}
	t.mu.Unlock()
	t.wg.Wait()
	return nil
}

// follow traces a shell and reports the commands that it and its children
// execute. The tag is the process id of the shell.
func (t *tracer) follow(pid int, user string) error {
	// 4096: by default, strace prints only 32 bytes of an argument.
	c := exec.Command(t.program, "-f", "-s", "4096", "-e", "trace=execve", "-p", strconv.Itoa(pid))
	out, err := c.StderrPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	t.mu.Lock()
	t.traced[pid] = c
	t.mu.Unlock()
	t.wg.Go(func() {
		last := t.read(out, pid, user)
		err := c.Wait()
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.traced, pid)
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) && failed.Exited() && strings.Contains(last, "ptrace") {
			t.err = fmt.Errorf("strace of process %d ended: %s", pid, last)
		}
	})
	return nil
}

// read reads the lines of one strace and returns the last.
func (t *tracer) read(out io.Reader, pid int, user string) (last string) {
	lines := bufio.NewReaderSize(out, maxTrace)
	for {
		line, long, err := lines.ReadLine()
		if err != nil {
			return last
		}
		last = string(line)
		for long && err == nil { // skip the rest of an overlong line
			_, long, err = lines.ReadLine()
		}
		program, args, ok := parseExec(last)
		if !ok {
			continue
		}
		list := &value.List{}
		for _, a := range args {
			list.Append(a)
		}
		t.mu.Lock()
		if len(t.commands) < maxCommands {
			t.commands = append(t.commands, value.DictOf("args", list, "tag", strconv.Itoa(pid), "cmd", program, "user", user))
		} else {
			t.lost++
		}
		t.mu.Unlock()
	}
}

// take returns the commands executed since the last check.
func (t *tracer) take() ([]*value.Dict, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out, err := t.commands, t.err
	if t.lost > 0 {
		err = errors.Join(err, fmt.Errorf("commands were executed faster than they are reported: %d were dropped", t.lost))
	}
	t.commands, t.lost, t.err = nil, 0, nil
	return out, err
}

func (t *tracer) follows(pid int) (followed, full bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, followed = t.traced[pid]
	return followed, len(t.traced) >= maxTraces
}

// parseExec reads a line of strace: execve("/bin/ls", ["ls", "-l"], …) = 0.
func parseExec(line string) (program string, args []string, ok bool) {
	_, rest, ok := strings.Cut(line, "execve(")
	if !ok {
		return "", nil, false
	}
	first := true
	for rest != "" && rest[0] != ')' && (rest[0] != ']' || first) {
		if rest[0] != '"' {
			rest = rest[1:]
			continue
		}
		text, after, ok := unquoteC(rest[1:])
		if !ok {
			break // truncated
		}
		if rest = after; first {
			program, first = text, false
		} else {
			args = append(args, text)
		}
	}
	return program, args, !first
}

// unquoteC reads a C string up to its closing quote.
func unquoteC(s string) (text, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return strings.ToValidUTF8(b.String(), "\ufffd"), s[i+1:], true
		case c != '\\' || i+1 == len(s):
			b.WriteByte(c)
		default:
			i++
			if at := strings.IndexByte("abfnrtv", s[i]); at >= 0 {
				b.WriteByte("\a\b\f\n\r\t\v"[at])
				continue
			}
			end := i
			for end < len(s) && end < i+3 && s[end] >= '0' && s[end] <= '7' {
				end++
			}
			if n, err := strconv.ParseUint(s[i:end], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i = end - 1
			} else {
				b.WriteByte(s[i])
			}
		}
	}
	return "", "", false
}

func init() {
	kinds.Register("sh", func(b machine) Beacon {
		return Beacon{
			Settings: "",
			Doc:      "Report the commands that users run in their shells. It needs the program strace.",
			Example:  "[]\n",
			Validate: valid, Look: b.shell,
		}
	})
}

// shell reports the commands of users in the shells of /etc/shells that were
// started without arguments.
func (b machine) shell(ctx context.Context, l Look) ([]*value.Dict, error) {
	t, _ := (*l.Held).(*tracer)
	if t == nil {
		program, err := exec.LookPath("strace")
		if err != nil {
			if l.Memory.Bool("missing") {
				return nil, nil
			}
			l.Memory.Set("missing", true)
			return nil, fmt.Errorf("it needs the program strace, which is looked up again each time: %w", err)
		}
		t = &tracer{program: program, traced: map[int]*exec.Cmd{}}
		*l.Held = t
	}
	v, err := l.Call.Funcs.Call(ctx, l.Call, "cmd.shells", nil, nil)
	if err != nil {
		return nil, err
	}
	shells := map[string]bool{}
	for _, path := range value.Texts(v) {
		shells[path], shells[filepath.Base(path)] = true, true
	}
	var failed []error
	for _, p := range process.All(b.m) {
		if len(p.Command) != 1 || !shells[strings.TrimPrefix(p.Command[0], "-")] {
			continue
		}
		followed, full := t.follows(p.PID)
		if followed || full {
			continue
		}
		user := strconv.Itoa(p.UID)
		if u, ok := account.ByID(b.m, p.UID); ok {
			user = u.Name
		}
		if err := t.follow(p.PID, user); err != nil {
			failed = append(failed, err)
		}
	}
	out, err := t.take()
	return out, errors.Join(append(failed, err)...)
}
