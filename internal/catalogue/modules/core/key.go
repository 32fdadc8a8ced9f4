package core

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"brine/internal/call/fn"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

// key shows the fingerprint of one file in the minion's directory of keys.
type key struct{ file string }

func init() {
	units.Declare("key", func() fn.Module {
		return fn.Module{Name: "key", Doc: `Fingerprints of the minion's keys.`, Funcs: []fn.Func{
			fn.Of("finger", key{"minion.pub"}.finger, `Return the fingerprint of the minion's public key.`, fn.Example("salt '*' key.finger")),
			fn.Of("finger_master", key{"minion_master.pub"}.finger, `Return the fingerprint of the master's public key that the minion trusts.`,
				fn.Example("salt '*' key.finger_master")),
		}}
	})
}

type fingerArgs struct {
	HashType any `salt:"hash_type" doc:"md5, sha1, sha224, sha256, sha384 or sha512; the option hash_type if null" default:"null"`
}

func (k key) finger(_ context.Context, c *fn.Call, a fingerArgs) (string, error) {
	if a.HashType == nil {
		a.HashType = c.Config.Get("hash_type")
	}
	hash := "sha256"
	if a.HashType != nil {
		hash = value.Str(a.HashType)
	}
	pem, err := os.ReadFile(filepath.Join(value.Str(c.Config.Get("pki_dir")), k.file))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", fn.Errorf("cannot read the key: %w", err)
	}
	finger := crypt.Fingerprint(pem, hash)
	if finger == "" {
		return "", fn.Invalidf("there is no hash %q; use md5, sha1, sha224, sha256, sha384 or sha512", hash)
	}
	return finger, nil
}
