package master

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
)

// endorsementsFile is the file in pki_dir with the endorsements, so that a
// replaced private key can be deleted. It is not secret and may be copied to
// other masters.
const endorsementsFile = "endorsements.json"

// kept is an endorsement as stored in the file.
type kept struct {
	Pub string `json:"pub"`
	Sig []byte `json:"sig"`
}

// loadEndorsements returns the endorsements in the file. If a replaced private key
// is in pki_dir, under the name in master_previous_key or
// master_sign_previous_key, that key signs the current one now, and the new
// endorsement is added to the file. present are the current keys: the master's
// own, then its signing key, if any.
func loadEndorsements(cfg *Config, present []*crypt.PublicKey, log *slog.Logger) ([]handshake.Endorsement, error) {
	path := filepath.Join(cfg.PKIDir, endorsementsFile)
	es, err := readEndorsements(path)
	if err != nil {
		return nil, err
	}
	names := []string{cfg.Options.MasterPreviousKey, cfg.Options.MasterSignPreviousKey}
	passes := []string{cfg.Options.KeyPass, cfg.Options.SigningKeyPass}
	added := false
	for i, pub := range present {
		old, err := previousKey(filepath.Join(cfg.PKIDir, names[i]+".pem"), passes[i], log)
		if err != nil {
			return nil, err
		}
		if old == nil || old.Public().Equal(pub) || slices.ContainsFunc(es, func(e handshake.Endorsement) bool { return e.Pub == clean(pub) && e.By(old.Public()) }) {
			continue
		}
		e, err := handshake.Endorse(old, pub)
		if err != nil {
			return nil, err
		}
		log.Info("the previous key signs the current one; minions that know it accept this master", "previous", names[i])
		es, added = append(es, e), true
	}
	if !added {
		return es, nil
	}
	return es, writeEndorsements(path, es)
}

func clean(k *crypt.PublicKey) string { return crypt.CleanKey(string(k.PEM())) }

// previousKey reads the replaced key. It returns nil if there is no such file.
func previousKey(path, pass string, log *slog.Logger) (*crypt.PrivateKey, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	k, err := crypt.LoadOwn(path, pass, log)
	if err != nil {
		return nil, fmt.Errorf("the key that was replaced: %w", err)
	}
	return k, nil
}

func readEndorsements(path string) ([]handshake.Endorsement, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var file []kept
	if err == nil {
		err = json.Unmarshal(b, &file)
	}
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "%s: %w; copy it from another master, or remove it", path, err)
	}
	es := make([]handshake.Endorsement, 0, len(file))
	for _, k := range file {
		es = append(es, handshake.Endorsement{Pub: crypt.CleanKey(k.Pub), Sig: k.Sig})
	}
	return es, nil
}

func writeEndorsements(path string, es []handshake.Endorsement) error {
	file := make([]kept, 0, len(es))
	for _, e := range es {
		file = append(file, kept{e.Pub, e.Sig})
	}
	b, err := json.MarshalIndent(file, "", "  ")
	if err == nil {
		err = atomicfile.Write(path, append(b, '\n'), 0o644, true)
	}
	if err != nil {
		return fmt.Errorf("cannot keep the endorsements: %w", err)
	}
	return nil
}
