package frame

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"
	"time"
)

// DumpOnSignal writes the stacks of all goroutines at each SIGUSR1, until stop is called. Like
// Salt's daemons, it writes to standard error if that is a terminal, else to a new file
// salt-debug-TIME.log in the directory for temporary files. It is for daemons; other programs end
// at SIGUSR1.
func DumpOnSignal(env *Env, log *slog.Logger) (stop func()) {
	usr1 := make(chan os.Signal, 1)
	signal.Notify(usr1, syscall.SIGUSR1)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-usr1:
			}
			if env.IsTerminal(env.Stderr) {
				if err := writeStacks(env.Stderr); err != nil {
					log.Error("cannot write the goroutine stacks requested by SIGUSR1", "err", err)
				}
				continue
			}
			path, err := dumpStacks(os.TempDir(), time.Now())
			if err != nil {
				log.Error("cannot write the goroutine stacks requested by SIGUSR1", "err", err)
				continue
			}
			log.Warn("received SIGUSR1: wrote the stacks of all goroutines to a file", "path", path)
		}
	}()
	return func() { signal.Stop(usr1); close(done) }
}

// maxDumps bounds the number of dumps per second.
const maxDumps = 100

// dumpStacks writes the stacks to a new file. The directory is writable for other users, so it
// never opens an existing file or link.
func dumpStacks(dir string, now time.Time) (path string, err error) {
	var f *os.File
	for i := range maxDumps {
		name := fmt.Sprintf("salt-debug-%d.log", now.Unix())
		if i > 0 {
			name = fmt.Sprintf("salt-debug-%d-%d-%d.log", now.Unix(), os.Getpid(), i)
		}
		path = filepath.Join(dir, name)
		f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return "", err
	}
	if err := errors.Join(writeStacks(f), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	return path, nil
}

func writeStacks(w io.Writer) error {
	_, err := fmt.Fprintf(w, "======== Salt Debug Stack Trace =========\n%s, process %d, %s\n\n", VersionLine(filepath.Base(os.Args[0])), os.Getpid(),
		time.Now().Format(time.RFC3339))
	if err == nil {
		err = pprof.Lookup("goroutine").WriteTo(w, 2)
	}
	if err == nil {
		_, err = io.WriteString(w, "=========================================\n")
	}
	return err
}
