package master

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/call/acl"
	"brine/internal/ha/cluster"
	"brine/internal/host"
	"brine/internal/host/account"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/py/value"
)

// loadIdentity reads or generates the key pair that minions see, which is the
// master's or the cluster's. It also loads the signing key or the stored
// signature, and the endorsements.
func loadIdentity(cfg *Config, in *cluster.Cluster, log *slog.Logger) (*handshake.Identity, error) {
	var key *crypt.PrivateKey
	var err error
	if in != nil {
		key = in.Keyring.Key()
	} else if key, err = loadPair(cfg.PKIDir, "master", cfg.Options.KeyPass, cfg.Options.Keysize, log); err != nil {
		return nil, err
	}
	vouched := []*crypt.PublicKey{key.Public()} // keys that previous keys may have endorsed
	var signer func([]byte, string) ([]byte, error)
	switch {
	case !cfg.Options.MasterSignPubkey:
	case cfg.Options.MasterUsePubkeySignature:
		if signer, err = storedSignature(filepath.Join(cfg.PKIDir, cfg.Options.MasterPubkeySignature)); err != nil {
			return nil, err
		}
		if err := checkStored(cfg, key.Public(), signer); err != nil {
			log.Error("minions that verify the master's public key will refuse this master", "err", err)
		}
	default:
		sk, err := loadPair(cfg.PKIDir, cfg.Options.MasterSignKeyName, cfg.Options.SigningKeyPass, cfg.Options.Keysize, log)
		if err != nil {
			return nil, err
		}
		signer = func(pub []byte, algo string) ([]byte, error) { return sk.Sign(algo, pub) }
		vouched = append(vouched, sk.Public())
	}
	id := handshake.NewIdentity(key, signer)
	es, err := loadEndorsements(cfg, vouched, log)
	if err != nil {
		return nil, err
	}
	if in != nil {
		es = append(es, in.Keyring.Endorsements()...)
	}
	id.SetEndorsements(es, in != nil)
	return id, nil
}

func loadPair(dir, name, pass string, bits int, log *slog.Logger) (*crypt.PrivateKey, error) {
	path := filepath.Join(dir, name+".pem")
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		log.Info("generating a key pair", "name", name, "dir", dir)
		k, err := crypt.GenerateKey(bits)
		if err != nil {
			return nil, err
		}
		if err := crypt.WriteKeyPair(dir, name, k, pass); err != nil {
			return nil, err
		}
	}
	k, err := crypt.LoadOwn(path, pass, log)
	if err != nil {
		return nil, err
	}
	return k, checkPublic(filepath.Join(dir, name+".pub"), k)
}

// checkPublic checks that the public key in a file belongs to a private one: a
// pair of which only one file was copied would cause confusing errors later. It
// writes a missing file.
func checkPublic(path string, k *crypt.PrivateKey) error {
	pub, err := crypt.LoadPublic(path)
	if errors.Is(err, fs.ErrNotExist) {
		return crypt.WritePublic(path, k.Public())
	}
	if err != nil {
		return err
	}
	if !pub.Equal(k.Public()) {
		return wrongPublic(path)
	}
	return nil
}

func wrongPublic(path string) error {
	return salt.Errorf(salt.Invalid, "%s does not belong to %s: copy both files of the pair from the same master, or remove the .pub file",
		path, strings.TrimSuffix(filepath.Base(path), ".pub")+".pem")
}

func storedSignature(path string) (func([]byte, string) ([]byte, error), error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("master_use_pubkey_signature is on, but the signature cannot be read: %w; make it with salt-key --gen-signature", err)
	}
	raw, err := base64.StdEncoding.DecodeString(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s is not a base64 signature: %w; make it again with salt-key --gen-signature", path, err)
	}
	return func([]byte, string) ([]byte, error) { return raw, nil }, nil
}

// checkStored verifies the stored signature of the public key that minions see,
// if the signing key is here. Salt 3007 signs the file with its newline, but
// sends the key without it.
func checkStored(cfg *Config, pub *crypt.PublicKey, stored func([]byte, string) ([]byte, error)) error {
	signer, err := crypt.LoadPublic(filepath.Join(cfg.PKIDir, cfg.Options.MasterSignKeyName+".pub"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	shown := []byte(crypt.CleanKey(string(pub.PEM())))
	for _, algo := range []string{crypt.PKCS1v15SHA1, crypt.PKCS1v15SHA224} {
		sig, err := stored(shown, algo)
		if err == nil && signer.Verify(algo, shown, sig) == nil {
			return nil
		}
	}
	path := filepath.Join(cfg.PKIDir, cfg.Options.MasterPubkeySignature)
	return fmt.Errorf("%s is not a signature of this master's public key by %s.pub: remove it and make it again with salt-key --gen-signature", path,
		cfg.Options.MasterSignKeyName)
}

// localKeys are the secrets with which users of this machine authenticate to the
// master. Each is in a file that only its user can read.
type localKeys map[string]string // by user name

// loadLocalKeys reads or creates cachedir/.root_key, one key for the account of
// the master process, and one for each user of publisher_acl; with verify
// (option client_acl_verify) also for the local accounts that match a pattern
// in it. The keys survive restarts.
func loadLocalKeys(ctx context.Context, cfg *Config, log *slog.Logger) (localKeys, error) {
	names := map[string]bool{"root": true, processUser(): true}
	if cfg.User != "" {
		names[cfg.User] = true
	}
	grants, _ := cfg.Options.PublisherACL.(*value.Dict)
	machine := &host.Machine{}
	for k := range grants.All() {
		// A pattern names no single user.
		if n := value.Str(k); !strings.ContainsAny(n, `*?[](){}|^$+\`) && salt.CheckID(n) == nil {
			names[n] = true
		}
	}
	if grants.Len() > 0 && cfg.Options.ClientACLVerify {
		for _, u := range account.Users(ctx, machine) {
			if salt.CheckID(u.Name) == nil && len(acl.Users(grants, u.Name)) > 0 {
				names[u.Name] = true
			}
		}
	}
	keys := localKeys{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		path := filepath.Join(cfg.CacheDir, "."+strings.ReplaceAll(name, "/", "_")+"_key")
		k, err := readLocalKey(path)
		if err != nil {
			return nil, err
		}
		keys[name] = k
		if u, ok := account.ByName(ctx, machine, name); os.Getuid() == 0 && ok && u.UID != 0 && name != cfg.User {
			if err := os.Lchown(path, u.UID, -1); err != nil {
				log.Warn("user of publisher_acl cannot read the key meant for that user", "user", name, "err", err)
			}
		}
	}
	return keys, nil
}

// processUser returns the account of the master process.
func processUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "root"
}

func readLocalKey(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil && len(b) > 0 {
		return string(b), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot read the key of the command line: %w", err)
	}
	if err == nil {
		os.Remove(path) // empty
	}
	k := crypt.NewKey()
	err = atomicfile.Create(path, []byte(k), 0o600)
	if errors.Is(err, fs.ErrExist) { // another master with this cachedir created it first
		b, err := os.ReadFile(path)
		return string(b), err
	}
	if err != nil {
		return "", fmt.Errorf("cannot write the key of the command line: %w", err)
	}
	return k, nil
}
