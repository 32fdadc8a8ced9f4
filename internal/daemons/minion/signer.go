package minion

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/daemons/minion/address"
	"brine/internal/net/channel"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
)

// LoadSigner prepares the minion's side of the sign-in from the files in
// pki_dir, and generates the key pair if there is none. It also returns the
// fingerprint of the minion's key.
func LoadSigner(cfg Config, log *slog.Logger) (*handshake.Minion, string, error) {
	path := filepath.Join(cfg.PKIDir, "minion.pem")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		log.Info("generating the minion's key pair", "path", cfg.PKIDir)
		k, err := crypt.GenerateKey(max(cfg.Keysize, 2048))
		if err != nil {
			return nil, "", err
		}
		if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
			return nil, "", fmt.Errorf("cannot make pki_dir: %w", err)
		}
		// salt-call may have generated the pair meanwhile: the first one is used.
		if err := crypt.WriteKeyPair(cfg.PKIDir, "minion", k, ""); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, "", err
		}
	}
	key, err := crypt.LoadOwn(path, "", log)
	if err != nil {
		return nil, "", err
	}
	s := &handshake.Minion{ID: cfg.ID, Key: key, Options: cfg.Handshake, Token: rand.Text(),
		Trust: channel.NewFileTrust(filepath.Join(cfg.PKIDir, "minion_master.pub"))}
	if cfg.Handshake.VerifyMasterPubkeySign {
		s.Signers = func() ([]*crypt.PublicKey, error) { return loadSigners(cfg) }
		if _, err := s.Signers(); err != nil {
			return nil, "", fmt.Errorf("verify_master_pubkey_sign needs the masters' signing key: %w", err)
		}
	}
	return s, crypt.Fingerprint(key.Public().PEM(), cfg.Handshake.HashType), nil
}

// loadSigners reads those signing keys that exist. It fails only if there is none.
func loadSigners(cfg Config) ([]*crypt.PublicKey, error) {
	var keys []*crypt.PublicKey
	var faults []error
	for _, name := range cfg.Handshake.MasterSignKeyName {
		k, err := crypt.LoadPublic(filepath.Join(cfg.PKIDir, name+".pub"))
		if err != nil {
			faults = append(faults, err)
			continue
		}
		keys = append(keys, k)
	}
	if len(keys) > 0 {
		return keys, nil
	}
	if len(faults) == 0 {
		return nil, errors.New("the option master_sign_key_name names none")
	}
	return nil, errors.Join(faults...)
}

// trustIn returns the file with the trusted public key of one master. With several masters
// each one has its own file.
func (cfg *Config) trustIn(addr address.Master, several bool) *channel.FileTrust {
	shared := filepath.Join(cfg.PKIDir, "minion_master.pub")
	if !several {
		return channel.NewFileTrust(shared)
	}
	h := &cfg.Handshake
	return channel.NewMasterTrust(shared, filepath.Join(cfg.PKIDir, "minion_masters", KeyFile(addr)), h.VerifyMasterPubkeySign || len(h.MasterFinger) > 1)
}

// KeyFile returns the name of the file with the public key of one of several masters.
func KeyFile(addr address.Master) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' || r == '-' {
			return r
		}
		return '_'
	}, addr.Text) + ".pub"
}
