package key

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"

	"brine/internal/base/salt"
	"brine/internal/store/keystore"
)

// forget removes the cached data of minions without a key, so that a later minion with the same id
// does not inherit it.
func (p *program) forget(gone []string) error {
	keys, err := p.keys.List()
	if err != nil {
		return err
	}
	bank, err := os.OpenRoot(filepath.Join(p.conf.Files.CacheDir, keystore.Accepted.DirName()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot remove the cached data of deleted minions: %w", err)
	}
	defer bank.Close()
	for _, id := range gone {
		still := slices.ContainsFunc(states, func(st keystore.State) bool { return slices.Contains(keys[st], id) })
		if still || salt.CheckID(id) != nil {
			continue
		}
		if e := bank.RemoveAll(id); e != nil {
			err = errors.Join(err, fmt.Errorf("cannot remove the cached data of %s: %w", id, e))
		}
	}
	return err
}

// requestRotation requests a new session key from the master: a file in the cache directory with
// the master's id, readable only by the master's user. The master refuses any other mode or id.
func requestRotation(c *conf) error {
	path, next := filepath.Join(c.Files.CacheDir, ".dfn"), filepath.Join(c.Files.CacheDir, ".dfn-next")
	if _, err := os.Lstat(path); err == nil {
		return nil // already requested
	}
	err := writeDrop(next, c.Files.ID, c.Files.User)
	if err == nil {
		err = os.Rename(next, path) // rename: an id, of no use after a crash
	}
	if err != nil {
		return fmt.Errorf("cannot request a new session key from the master: %w; deleted minions can read its jobs until it creates one", err)
	}
	return nil
}

func writeDrop(path, id, owner string) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o400)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteString(id); err != nil {
		return err
	}
	if err := f.Chmod(0o400); err != nil { // regardless of the umask
		return err
	}
	return chown(path, owner)
}

// chown gives a file to the master's user, if that is another user.
func chown(path, owner string) error {
	if owner == "" || os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup(owner)
	if err != nil {
		return nil // as if it were not configured; the master would not start either
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil || uid == os.Getuid() {
		return nil
	}
	return os.Chown(path, uid, -1)
}
