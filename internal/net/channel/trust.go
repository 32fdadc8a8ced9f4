package channel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"brine/internal/base/atomicfile"
	"brine/internal/net/crypt"
)

// FileTrust stores the master's public key in a file: minion_master.pub in the
// minion's pki_dir. All connections of one minion share it, because hot masters
// have one key; so do other processes, such as salt-call. A master with an
// endorsed key of its own has a file of its own.
type FileTrust struct {
	path string
	// own is the file for this master only, "" for none. apart means that the key in the shared
	// file says nothing about this master.
	own   string
	apart bool
	mu    sync.Mutex
}

// NewMasterTrust is NewFileTrust for one of several masters. The file own contains this master's
// own key once there is one. apart means that these masters have different keys, so that a mismatch
// with the shared key is no reason to refuse another master.
func NewMasterTrust(path, own string, apart bool) *FileTrust {
	return &FileTrust{path: path, own: own, apart: apart}
}

// NewFileTrust uses the given file, which need not exist yet.
func NewFileTrust(path string) *FileTrust { return &FileTrust{path: path} }

// File returns the path of the file in use.
func (t *FileTrust) File() string {
	if t.own == "" {
		return t.path
	}
	if _, err := os.Stat(t.own); err == nil || t.apart {
		return t.own
	}
	return t.path
}

// Succeed stores pem as the key of this master alone or, with common, of all
// masters that share the file.
func (t *FileTrust) Succeed(pem string, common bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if common && t.own != "" && !t.apart {
		if _, err := t.write(t.path, pem); err != nil {
			return err
		}
		if err := os.Remove(t.own); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove the key that a master had: %w", err)
		}
		return nil
	}
	if t.own == "" {
		_, err := t.write(t.path, pem)
		return err
	}
	_, err := t.writeOwn(pem)
	return err
}

func (t *FileTrust) writeOwn(pem string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(t.own), 0o700); err != nil {
		return "", fmt.Errorf("cannot keep the master's key: %w", err)
	}
	return t.write(t.own, pem)
}

// Known returns the stored key. It reads the file each time, so that changes by
// an operator take effect without a restart. An unreadable file counts as none
// here: Adopt reports it.
func (t *FileTrust) Known() (string, bool) {
	b, err := os.ReadFile(t.File())
	if err != nil {
		return "", false
	}
	return crypt.CleanKey(string(b)), true
}

// Adopt stores pem if there is no key yet or replace is set, and returns the
// key that is stored then. If several processes adopt different keys at once,
// one wins.
func (t *FileTrust) Adopt(pem string, replace bool) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.File() != t.path {
		return t.adoptOwn(pem, replace)
	}
	old, err := os.ReadFile(t.path)
	switch {
	case err == nil && (!replace || crypt.CleanKey(string(old)) == pem):
		return crypt.CleanKey(string(old)), nil
	case err == nil:
		return t.write(t.path, pem)
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("cannot read the master's key: %w", err)
	}
	err = atomicfile.Create(t.path, []byte(pem), 0o644)
	if err == nil {
		return pem, nil
	}
	if old, readErr := os.ReadFile(t.path); readErr == nil {
		return crypt.CleanKey(string(old)), nil // another process was faster
	}
	// Not all file systems can create a file exclusively.
	return t.write(t.path, pem)
}

// adoptOwn is Adopt for the file of this master; t.mu is held. Programs that do
// not know such files find the first key in the shared one.
func (t *FileTrust) adoptOwn(pem string, replace bool) (string, error) {
	old, err := os.ReadFile(t.own)
	switch {
	case err == nil && (!replace || crypt.CleanKey(string(old)) == pem):
		return crypt.CleanKey(string(old)), nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("cannot read the master's key: %w", err)
	}
	if _, err := os.Stat(t.path); errors.Is(err, fs.ErrNotExist) {
		_ = atomicfile.Create(t.path, []byte(pem), 0o644)
	}
	return t.writeOwn(pem)
}

func (*FileTrust) write(path, pem string) (string, error) {
	if err := atomicfile.Write(path, []byte(pem), 0o644, true); err != nil {
		return "", fmt.Errorf("cannot keep the master's key: %w", err)
	}
	return pem, nil
}
