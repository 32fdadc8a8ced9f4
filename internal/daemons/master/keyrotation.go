package master

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/net/event"
	"brine/internal/py/value"
)

// keyRotation replaces the AES key of publications.
type keyRotation struct {
	id        string // of this master
	cacheDir  string
	settings  *settings
	replace   func() error
	publisher *publisher
	bus       *event.Bus
	log       *slog.Logger
}

// dropfile is how salt-key, ours or Salt's, asks for a new AES key: a file
// that holds the id of the master it is meant for.
const dropfile = ".dfn"

// rotateOnRequest calls rotate if the drop file asks the master with this id for
// a new AES key, and removes the file afterwards: salt-key and scripts wait until
// it is gone, and then all masters of a cluster must use the new key. If rotate
// fails, the request stays.
func rotateOnRequest(path, id string, rotate func() error) error {
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.Mode().Perm() != 0o400 || fi.Size() > 1024 {
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil || strings.TrimSpace(string(b)) != id {
		return nil
	}
	// A file that cannot be removed must not ask again each second.
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("the request for a new AES key is not followed, because it could not be removed: %w", err)
	}
	if err := rotate(); err != nil {
		return errors.Join(err, os.Chmod(path, 0o400))
	}
	return os.Remove(path)
}

// onRequest replaces the key if the drop file asks for that.
func (k *keyRotation) onRequest() error {
	return rotateOnRequest(filepath.Join(k.cacheDir, dropfile), k.id, k.rotate)
}

// rotateOrLog is rotate where an error has no reader but the log.
func (k *keyRotation) rotateOrLog() {
	if err := k.rotate(); err != nil {
		k.log.Error("cannot replace the AES key", "err", err)
	}
}

// rotate replaces the key of publications. Minions that still have an
// accepted key notice at the next publication and sign in again.
func (k *keyRotation) rotate() error {
	if err := k.replace(); err != nil {
		return err
	}
	k.log.Info("the AES key was replaced")
	k.bus.Fire("key", value.DictOf("rotate_aes_key", true))
	if k.settings.options().PingOnRotate {
		k.publisher.publish(value.DictOf("fun", "test.ping", "arg", &value.List{}, "tgt", "*", "tgt_type", "glob", "ret", "", "user", "root"))
	}
	return nil
}
