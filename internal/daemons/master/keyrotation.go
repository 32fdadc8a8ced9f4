package master

import (
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
	id        string // id of this master
	cacheDir  string
	settings  *settings
	replace   func() error
	publisher *publisher
	bus       *event.Bus
	log       *slog.Logger
}

// dropfile is the file in cachedir with which salt-key, stock or Brine, requests a
// new AES key. It contains the id of the master that must create it.
const dropfile = ".dfn"

// rotating is added to the name of the drop file during the rotation. If such a
// file exists before a rotation, the last rotation failed, or the master process
// ended during it; so the file counts as a request.
const rotating = "-rotating"

// rotateOnRequest calls rotate if the drop file asks the master with this id for
// a new AES key. salt-key writes no second request while the drop file is there,
// so the file is renamed first: a minion key that is deleted during rotate needs
// another new AES key. The request is repeated if rotate fails or the master ends
// meanwhile.
func rotateOnRequest(path, id string, rotate func() error) error {
	taken := path + rotating
	var err error
	switch {
	case isRequest(path, id):
		err = os.Rename(path, taken) // rename: moves a request
	case isRequest(taken, id):
		err = os.Chmod(taken, 0o400) // only a check that the file can be changed
	default:
		return nil
	}
	if err != nil { // do not rotate: a request that stays would rotate every second
		return fmt.Errorf("the request for a new AES key is not followed, because it could not be removed: %w", err)
	}
	if err := rotate(); err != nil {
		return err
	}
	return os.Remove(taken)
}

// isRequest reports whether a file asks the master with this id for a new key.
func isRequest(path, id string) bool {
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.Mode().Perm() != 0o400 || fi.Size() > 1024 {
		return false
	}
	b, err := os.ReadFile(path)
	return err == nil && strings.TrimSpace(string(b)) == id
}

// onRequest replaces the key if the drop file asks for that.
func (k *keyRotation) onRequest() error {
	return rotateOnRequest(filepath.Join(k.cacheDir, dropfile), k.id, k.rotate)
}

// rotateOrLog is rotate for callers that can only log an error.
func (k *keyRotation) rotateOrLog() {
	if err := k.rotate(); err != nil {
		k.log.Error("cannot rotate the AES key", "err", err)
	}
}

// rotate replaces the AES key of publications. Minions with an accepted key
// notice at the next publication and sign in again.
func (k *keyRotation) rotate() error {
	if err := k.replace(); err != nil {
		return err
	}
	k.log.Info("rotated the AES key")
	k.bus.Fire("key", value.DictOf("rotate_aes_key", true))
	if k.settings.options().PingOnRotate {
		k.publisher.publish(value.DictOf("fun", "test.ping", "arg", &value.List{}, "tgt", "*", "tgt_type", "glob", "ret", "", "user", "root"))
	}
	return nil
}
