package returners

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// A call outside of the daemon delivers its result itself. If the server is unreachable,
// the call stores the result in a directory that the daemon reads every calledEvery,
// because only the daemon may write to the outbox.
const (
	calledName  = "called"
	calledEvery = 3 * time.Second
	// maxCalled bounds the number of results in that directory.
	maxCalled = 10_000
	// maxCalledSize bounds one result, in bytes.
	maxCalledSize = 64 << 20
)

func (r *Returners) calledDir() string {
	return filepath.Join(r.cfg.Dir, calledName)
}

// Names splits list at commas; if it is empty, it returns the names in the
// option return. The master's own returner is omitted.
func (r *Returners) Names(list string) []string {
	names := SplitWords(list)
	if list == "" {
		names = value.Texts(r.cfg.Options.Return)
	}
	return cleanNames(names)
}

// Deliver sends a result to the server of a returner, and waits at most twice the option
// returner_timeout. If the server is unreachable, it leaves the result to the daemon, and
// the error says so. pillar may be nil.
func (r *Returners) Deliver(ctx context.Context, name, jid string, pillar, ret *value.Dict) error {
	if !slices.Contains(r.usable(), name) {
		return salt.Errorf(salt.NotFound, "there is no returner %q: %s are known", name, strings.Join(r.usable(), ", "))
	}
	if pillar != nil {
		r.mu.Lock()
		r.pillar = pillar
		r.mu.Unlock()
	}
	bounded, cancel := context.WithTimeout(ctx, r.waitLimit())
	defer cancel()
	err := r.deliver(bounded, name, ret)
	if err == nil || salt.KindOf(err) != salt.Unavailable && bounded.Err() == nil {
		return err
	}
	if e := r.leave(name, jid, ret); e != nil {
		return errors.Join(err, e)
	}
	return salt.Errorf(salt.Unavailable, "%w; the result waits in %s until the server is back and salt-minion runs", err, r.calledDir())
}

// leave stores a result in the directory that the daemon reads.
func (r *Returners) leave(name, jid string, ret *value.Dict) error {
	dir := r.calledDir()
	if err := atomicfile.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("the result cannot be kept for the server: %w", err)
	}
	if there, err := os.ReadDir(dir); err == nil && len(there) >= maxCalled {
		return salt.Errorf(salt.Unavailable, "the result is not kept for the server: %d wait in %s already; start salt-minion, which delivers them", len(there), dir)
	}
	b, err := msgpack.Marshal(ret, msgpack.NewSpec)
	if err == nil && len(b) > maxCalledSize {
		err = fmt.Errorf("it has %d bytes, and at most %d are kept", len(b), maxCalledSize)
	}
	if err == nil {
		err = atomicfile.Create(filepath.Join(dir, fmt.Sprintf("%s.%s.%d", name, jid, os.Getpid())), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("the result cannot be kept for the server: %w", err)
	}
	return nil
}

// Collect reads the results that calls outside of the daemon have left, until ctx ends.
// pillar returns the pillar of the first connected master, or nil.
func (r *Returners) Collect(ctx context.Context, pillar func() *value.Dict) {
	atomicfile.RemoveTemps(r.calledDir())
	tick := time.NewTicker(calledEvery)
	defer tick.Stop()
	refused := map[string]bool{} // files whose error has been logged
	for {
		left, _ := os.ReadDir(r.calledDir())
		for _, f := range left {
			path := filepath.Join(r.calledDir(), f.Name())
			if err := r.adopt(path, pillar()); err != nil && !refused[path] {
				refused[path] = true
				r.cfg.Log.Error("cannot deliver returns that salt-call queued for a returner", "path", path, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// adopt moves such a result to the outbox. After a crash in between, the result is
// delivered twice, but servers store it once.
func (r *Returners) adopt(path string, pillar *value.Dict) error {
	name, _, ok := strings.Cut(filepath.Base(path), ".")
	if !ok || !slices.Contains(r.usable(), name) {
		return nil // a temporary file, or the returner was disabled
	}
	if fi, err := os.Stat(path); err != nil || fi.Size() > maxCalledSize {
		return fmt.Errorf("no file of a result: %w", err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	v, err := msgpack.UnmarshalTyped(b)
	ret, ok := v.(*value.Dict)
	if err != nil || !ok {
		return salt.Errorf(salt.Invalid, "it is damaged: %w", err)
	}
	if err := r.put(pillar, name, ret); err != nil {
		return err
	}
	return os.Remove(path)
}
