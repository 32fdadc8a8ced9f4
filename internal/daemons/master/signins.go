package master

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/base/wait"
)

// signInsName is the file with the recent sign-ins of stock minions, in the own
// directory of a master in a cluster: a line "MILLISECONDS ID" for each.
const signInsName = "signedin"

// signInLog stores sign-ins of stock minions. Without it a restarted master
// would republish a job to a minion that was killed while it ran the job and has
// restarted.
//
// A sign-in is written before it is answered, so that it survives a crash of the process. A
// later flush, shared by all that were written meanwhile, makes it survive a crash of the
// machine.
type signInLog struct {
	path string
	// recent returns the sign-ins that are still relevant.
	recent func() map[string]time.Time
	sync   func(*os.File) error
	log    *ratelimit.Log
	pause  time.Duration // rewritePause, except in tests

	mu       sync.Mutex
	file     *os.File // nil: the next sign-in writes the whole file
	lines    int
	retry    time.Time // when the next rewrite is due after a failed one
	appended wait.Wakeup
}

// rewritePause is the time between attempts to write the whole file. Otherwise
// each sign-in would write it on a full disk.
const rewritePause = time.Second

// signInLines is how many lines may be appended before the file is rewritten.
const signInLines = 20_000

func newSignInLog(dir string, recent func() map[string]time.Time, log *ratelimit.Log) *signInLog {
	return &signInLog{path: filepath.Join(dir, signInsName), recent: recent, sync: (*os.File).Sync, log: log, pause: rewritePause,
		appended: wait.NewWakeup()}
}

// add appends a sign-in, which is already among the recent ones.
func (l *signInLog) add(id string, at time.Time) {
	if salt.CheckID(id) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.append(id, at); err != nil {
		l.close()
		if l.retry.IsZero() { // the whole file has not been tried yet
			l.retry = time.Now()
			l.appended.Wake()
		}
		l.failed(err)
	}
}

func (l *signInLog) append(id string, at time.Time) error {
	switch {
	case l.file == nil && time.Now().Before(l.retry):
		return nil // run writes it later, because it is among the recent ones
	case l.file == nil || l.lines > signInLines:
		return l.rewrite()
	}
	if _, err := l.file.Write(signInLine(nil, id, at)); err != nil {
		return err
	}
	l.lines++
	l.appended.Wake()
	return nil
}

func signInLine(b []byte, id string, at time.Time) []byte {
	b = strconv.AppendInt(b, at.UnixMilli(), 10)
	b = append(b, ' ')
	b = append(b, id...)
	return append(b, '\n')
}

// rewrite replaces the file by one with the recent sign-ins; l.mu is held. After an
// error run tries again.
func (l *signInLog) rewrite() error {
	err := l.writeWhole()
	if l.retry = (time.Time{}); err != nil {
		l.retry = time.Now().Add(l.pause)
		l.appended.Wake()
	}
	return err
}

func (l *signInLog) writeWhole() error {
	l.close()
	recent := l.recent()
	var b []byte
	for id, at := range recent {
		b = signInLine(b, id, at)
	}
	if err := atomicfile.Write(l.path, b, 0o600, true); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	l.file, l.lines = f, 0
	return nil
}

// close makes the next sign-in write the whole file; l.mu is held.
func (l *signInLog) close() {
	if l.file != nil {
		l.file.Close() // all its relevant data is in memory
		l.file = nil
	}
}

func (l *signInLog) failed(err error) {
	l.log.Log(slog.LevelWarn, "cannot record sign-ins of stock minions; a restart within a minute may publish jobs to them again", "path",
		l.path, "err", atomicfile.Cause(err))
}

// run flushes appended lines until ctx ends.
func (l *signInLog) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			l.close()
			return nil
		case <-l.appended.C():
		}
		l.mu.Lock()
		f, retry := l.file, l.retry
		l.mu.Unlock()
		if f == nil {
			if !retry.IsZero() && wait.Sleep(ctx, time.Until(retry)) {
				l.again()
			}
			continue
		}
		err := l.sync(f)
		if err == nil || errors.Is(err, fs.ErrClosed) { // closed: replaced by a newer file
			continue
		}
		// The system reports a failed write only once. A second flush of this file
		// would succeed without the data.
		l.mu.Lock()
		if err = l.rewrite(); err != nil {
			l.failed(err)
		}
		l.mu.Unlock()
	}
}

// again writes the file after a failed attempt.
func (l *signInLog) again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		return
	}
	if err := l.rewrite(); err != nil {
		l.failed(err)
	}
}

// readSignIns returns the sign-ins after a time that masters recorded, each in its
// directory below masters. An error with one file does not hide the others.
func readSignIns(masters string, after time.Time) (map[string]time.Time, error) {
	out := map[string]time.Time{}
	dirs, err := os.ReadDir(masters)
	if err != nil {
		return nil, fmt.Errorf("cannot look for recorded sign-ins: %w", err)
	}
	var failed []error
	for _, d := range dirs {
		b, err := os.ReadFile(filepath.Join(masters, d.Name(), signInsName))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("cannot read recorded sign-ins: %w", err))
			continue
		}
		// A line without its end may lack a part of the id.
		b = b[:bytes.LastIndexByte(b, '\n')+1]
		for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
			ms, id, _ := bytes.Cut(s.Bytes(), []byte{' '})
			n, err := strconv.ParseInt(string(ms), 10, 64)
			at := time.UnixMilli(n)
			if err == nil && salt.CheckID(string(id)) == nil && at.After(after) && at.After(out[string(id)]) {
				out[string(id)] = at
			}
		}
	}
	return out, errors.Join(failed...)
}
