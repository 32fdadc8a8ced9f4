package account

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"brine/internal/base/atomicfile"
	"brine/internal/base/wait"
	"brine/internal/host"
)

// Shadow is an entry of /etc/shadow. The numbers are days; -1 is none.
type Shadow struct {
	Name     string
	Password string // the hash; a leading "!" or "*" disables the password
	Changed  int    // since 1970
	Min, Max int
	Warn     int
	Inactive int
	Expire   int // since 1970
}

// Shadows returns the entries of /etc/shadow, which only root can read.
func Shadows(m *host.Machine) ([]Shadow, error) {
	b, err := m.ReadFile("/etc/shadow")
	if err != nil {
		return nil, fmt.Errorf("cannot read the passwords: %w", err)
	}
	return parse(strings.Split(string(b), "\n"), parseShadow), nil
}

func parseShadow(line string) (Shadow, bool) {
	f := strings.Split(line, ":")
	if len(f) < 8 || f[0] == "" {
		return Shadow{}, false
	}
	day := func(i int) int {
		if n, err := strconv.Atoi(f[i]); err == nil {
			return n
		}
		return -1
	}
	return Shadow{Name: f[0], Password: f[1], Changed: day(2), Min: day(3), Max: day(4), Warn: day(5), Inactive: day(6), Expire: day(7)}, true
}

// lockTime is how long SetPassword waits for a program that changes accounts.
const lockTime = 15 * time.Second

// SetPassword sets the hash of an account's password and records today as the
// day of the change. An account without entry gets one. It holds the lock that
// passwd(1) and useradd(8) use, and replaces the whole file.
func SetPassword(ctx context.Context, m *host.Machine, name, hash string, now time.Time) error {
	if strings.ContainsAny(name+hash, ":\n") {
		return errors.New("neither a name nor a hash may hold a colon or a line end")
	}
	lock, err := lockAccounts(ctx, m)
	if err != nil {
		return err
	}
	defer lock.Close()
	const path = "/etc/shadow"
	b, err := m.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot read the passwords: %w", err)
	}
	today := strconv.FormatInt(now.Unix()/86400, 10)
	lines, found := strings.SplitAfter(string(b), "\n"), false
	for i, line := range lines {
		f := strings.Split(strings.TrimSpace(line), ":")
		if f[0] != name {
			continue
		}
		for len(f) < 9 {
			f = append(f, "")
		}
		f[1], f[2], found = hash, today, true
		lines[i] = strings.Join(f[:9], ":") + "\n"
	}
	text := strings.Join(lines, "")
	if !found {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text += name + ":" + hash + ":" + today + "::::::\n"
	}
	if err := replace(m.Path(path), text); err != nil {
		return fmt.Errorf("cannot write the passwords: %w", err)
	}
	return nil
}

// lockAccounts takes the lock of the C library's lckpwdf.
func lockAccounts(ctx context.Context, m *host.Machine) (*os.File, error) {
	f, err := os.OpenFile(m.Path("/etc/.pwd.lock"), os.O_WRONLY|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the accounts: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	for {
		// A lock of the open file excludes goroutines as well as programs.
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			f.Close()
			return nil, fmt.Errorf("cannot lock the accounts: %w", err)
		}
		if !wait.Sleep(ctx, 50*time.Millisecond) {
			f.Close()
			return nil, errors.New("another program holds the lock on the accounts; try again later")
		}
	}
}

// replace rewrites a file and keeps its owner and mode.
func replace(path, text string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	return atomicfile.ReplaceAs(path, atomicfile.As{Mode: -1, UID: -1, GID: -1, Durable: true}, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}
