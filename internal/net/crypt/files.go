package crypt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
)

// LoadPrivate reads a private key file. The errors are those of the file
// system (fs.ErrNotExist, for one) and of ParsePrivate; they name the file.
func LoadPrivate(path, passphrase string) (*PrivateKey, error) {
	text, err := readKey(path)
	if err != nil {
		return nil, err
	}
	k, err := ParsePrivate(text, passphrase)
	switch {
	case errors.Is(err, ErrPassphrase):
		return nil, fmt.Errorf("cannot read private key %s: %w; set the right passphrase in the configuration", path, err)
	case err != nil:
		return nil, fmt.Errorf("cannot read private key %s: %w; restore the file, or move it away to get a new key", path, err)
	}
	return k, nil
}

// LoadPublic reads a public key file. The errors are those of the file system
// and of ParsePublic; they name the file.
func LoadPublic(path string) (*PublicKey, error) {
	text, err := readKey(path)
	if err != nil {
		return nil, err
	}
	k, err := ParsePublic(text)
	if err != nil {
		return nil, fmt.Errorf("cannot read public key %s: %w; replace the file, or delete it to get it again", path, err)
	}
	return k, nil
}

// LoadOwn is LoadPrivate for the key of a daemon. If others than its owner can read the file, and
// this process owns it, the mode is narrowed with a warning, because copies often have the wrong
// mode. The error is of kind Denied if another user owns the file or can write to it, because the
// key may then be that user's.
func LoadOwn(path, passphrase string, log *slog.Logger) (*PrivateKey, error) {
	k, err := LoadPrivate(path, passphrase)
	if err != nil {
		return nil, err
	}
	mode, err := exposed(path)
	if err != nil || mode == 0 {
		return k, err
	}
	if err := os.Chmod(path, mode&0o700); err != nil {
		return nil, salt.Errorf(salt.Denied, "the private key %s is readable by others (mode %04o), and chmod failed: %w; run chmod 400 on it", path, mode,
			err)
	}
	log.Warn("private key was readable by other users; changed its mode. Generate a new key if another user may have read it",
		"path", path, "mode", fmt.Sprintf("%04o", mode), "changed_to", fmt.Sprintf("%04o", mode&0o700))
	return k, nil
}

// CheckOwn reports what LoadOwn would do, without changing anything: an error,
// or a warning.
func CheckOwn(path, passphrase string) (warning string, err error) {
	if _, err := LoadPrivate(path, passphrase); err != nil {
		return "", err
	}
	mode, err := exposed(path)
	if err != nil || mode == 0 {
		return "", err
	}
	return fmt.Sprintf("others than its owner can read the private key %s (mode %04o), which the daemon changes when it starts; make a new key if "+
		"another user may have read it", path, mode), nil
}

// exposed returns the mode of a private key of this process's user that others can read, or 0. It
// fails if the mode cannot be repaired.
func exposed(path string) (fs.FileMode, error) {
	st, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	mode := st.Mode().Perm()
	if mode&0o077 == 0 {
		return 0, nil
	}
	owner, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case mode&0o022 != 0:
		return 0, salt.Errorf(salt.Denied, "others than its owner can read or write the private key %s (mode %04o): run chmod 400 on it, and make a "+
			"new one if another user may have read or replaced it", path, mode)
	case !ok || int(owner.Uid) != os.Geteuid():
		return 0, salt.Errorf(salt.Denied, "others than its owner can read the private key %s (mode %04o), and another user owns it: run chmod 400 "+
			"and chown on it, and make a new one if another user may have read it", path, mode)
	}
	return mode, nil
}

func readKey(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(f, maxPEM+1)); err == nil {
			return text, nil
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("cannot read key: %w; run as the user that owns the file", err)
	}
	return nil, fmt.Errorf("cannot read key: %w", err)
}

// WriteKeyPair writes k to dir as name.pem (mode 0400) and name.pub (0644), the former encrypted
// unless the passphrase is empty. Each file is written atomically, and is on disk when the call
// returns. An existing private key is never replaced: the error is then fs.ErrExist, and name.pub
// stays unchanged, so that of two processes that create a key at once both can load the winner's.
// After a crash name.pub may be missing; it can be made from name.pem.
func WriteKeyPair(dir, name string, k *PrivateKey, passphrase string) error {
	text, err := k.EncryptedPEM(passphrase)
	if err != nil {
		return err
	}
	if err := writeNew(dir, name+".pem", text, 0o400); err != nil {
		return fmt.Errorf("cannot write private key: %w", hint(err, dir))
	}
	return WritePublic(filepath.Join(dir, name+".pub"), k.Public())
}

// WritePublic writes k to a file of mode 0644 atomically, and replaces an existing one.
func WritePublic(path string, k *PublicKey) error {
	if err := atomicfile.Write(path, k.PEM(), 0o644, true); err != nil {
		return fmt.Errorf("cannot write public key: %w", hint(err, filepath.Dir(path)))
	}
	return nil
}

func hint(err error, dir string) error {
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w; move it away first if it is to be replaced", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; create the directory %s", err, dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; run as the user that owns %s", err, dir)
	}
	return err
}

// writeNew creates a file that must not exist. A hard link is the only step that is atomic and does
// not replace.
func writeNew(dir, name string, data []byte, mode fs.FileMode) error {
	temp, err := writeTemp(dir, data, mode)
	if err != nil {
		return err
	}
	defer os.Remove(temp)
	path := filepath.Join(dir, name)
	if err := os.Link(temp, path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
		}
		// Not every file system has links.
		if _, err := os.Lstat(path); err == nil {
			return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
		}
		if err := os.Rename(temp, path); err != nil { // rename: it is flushed, and there is no link
			return err
		}
	}
	return atomicfile.SyncDir(dir)
}

// writeTemp writes data to a new file in dir and returns its path.
func writeTemp(dir string, data []byte, mode fs.FileMode) (path string, err error) {
	f, err := os.CreateTemp(dir, ".key-*")
	if err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(data); err != nil {
		return "", err
	}
	if err := f.Chmod(mode); err != nil {
		return "", err
	}
	return f.Name(), f.Sync()
}
