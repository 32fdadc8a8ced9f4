package migrate

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"brine/internal/base/salt"
	"brine/internal/store/keystore"
)

// maxExported bounds a file of exported keys in bytes: about 100,000 keys.
const maxExported = 128 << 20

// keysOf returns the directory of keys that from names: the directory itself, or a temporary one
// with the keys of a file written by salt-key -P --out=json. The caller removes it with done.
func keysOf(from string) (dir string, done func(), err error) {
	st, err := os.Stat(from)
	if err != nil || !st.Mode().IsRegular() {
		return from, func() {}, nil
	}
	if st.Size() > maxExported {
		return "", nil, salt.Errorf(salt.Invalid, "%s has %d bytes, more than the %d that a file of keys may have", from, st.Size(), maxExported)
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return "", nil, err
	}
	var exported map[string]map[string]json.RawMessage
	if err := json.Unmarshal(text, &exported); err != nil {
		return "", nil, salt.Errorf(salt.Invalid, "%s is not the output of salt-key -P --out=json: %w", from, err)
	}
	if dir, err = os.MkdirTemp("", "brine-keys-"); err != nil {
		return "", nil, err
	}
	done = func() { os.RemoveAll(dir) }
	if err := writeExported(dir, exported); err != nil {
		done()
		return "", nil, fmt.Errorf("%s: %w", from, err)
	}
	return dir, done, nil
}

// writeExported writes keys, by state and id, to files.
func writeExported(dir string, exported map[string]map[string]json.RawMessage) error {
	if err := os.Mkdir(filepath.Join(dir, keystore.Accepted.DirName()), 0o700); err != nil {
		return err
	}
	for _, state := range slices.Sorted(maps.Keys(exported)) {
		keys := exported[state]
		if !slices.Contains(keystore.DirNames(), state) {
			return salt.Errorf(salt.Invalid, "there is no state %q of keys: export them with salt-key -P --out=json", state)
		}
		if err := os.MkdirAll(filepath.Join(dir, state), 0o700); err != nil {
			return err
		}
		for _, id := range slices.Sorted(maps.Keys(keys)) {
			raw := keys[id]
			if err := salt.CheckID(id); err != nil {
				return err
			}
			var pub string
			if err := json.Unmarshal(raw, &pub); err != nil {
				// For an id with several denied keys, Salt 3008 prints a list.
				var several []string
				if err := json.Unmarshal(raw, &several); err != nil || len(several) == 0 {
					return salt.Errorf(salt.Invalid, "the key of %s in %s is not a string", id, state)
				}
				pub = several[0]
			}
			if err := os.WriteFile(filepath.Join(dir, state, id), []byte(pub), 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}
