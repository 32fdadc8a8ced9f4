package key

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/net/crypt"
)

// genKeys generates a key pair and shows its fingerprint. An existing pair is kept.
func (p *program) genKeys() error {
	o := &p.opts
	if salt.CheckID(o.GenKeys) != nil {
		return usageError{fmt.Errorf("--gen-keys: %.80q is not a valid name of a key pair; set its directory with --gen-keys-dir", o.GenKeys)}
	}
	if err := os.MkdirAll(o.GenKeysDir, 0o755); err != nil {
		return err
	}
	if err := p.makePair(o.GenKeysDir, o.GenKeys); err != nil {
		return err
	}
	pub, err := os.ReadFile(filepath.Join(o.GenKeysDir, o.GenKeys+".pub"))
	if err != nil {
		return err
	}
	return p.display(single(crypt.Fingerprint(pub, "sha256")))
}

func (p *program) makePair(dir, name string) error {
	priv := filepath.Join(dir, name+".pem")
	if _, err := os.Stat(priv); err == nil {
		return nil
	}
	k, err := crypt.GenerateKey(p.conf.KeySize)
	if err != nil {
		return err
	}
	if err := crypt.WriteKeyPair(dir, name, k, p.conf.SigningPass); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return errors.Join(chown(priv, p.conf.Files.User), chown(filepath.Join(dir, name+".pub"), p.conf.Files.User))
}

// genSignature signs the master's public key for minions that verify it. A missing file is reported
// as the result, as in Salt.
func (p *program) genSignature() error {
	o, dir := &p.opts, p.conf.keyDir()
	pub, missing := pick(o.Pub, filepath.Join(dir, "master.pub"))
	if missing {
		return p.display(single(fmt.Sprintf("Public-key %s does not exist", o.Pub)))
	}
	priv, missing := pick(o.Priv, filepath.Join(dir, "master_sign.pem"))
	if missing {
		return p.display(single(fmt.Sprintf("Private-key %s does not exist", o.Priv)))
	}
	if priv == "" {
		if !o.AutoCreate {
			return p.display(single("No usable private-key found"))
		}
		if err := p.makePair(dir, p.conf.SignKeyName); err != nil {
			return err
		}
		priv = filepath.Join(dir, p.conf.SignKeyName+".pem")
	}
	if pub == "" {
		return p.display(single("No usable public-key found"))
	}
	if o.SignaturePath != "" {
		dir = o.SignaturePath
	}
	done, err := p.sign(priv, pub, filepath.Join(dir, p.conf.Signature))
	if err != nil {
		return err
	}
	return p.display(single(done))
}

// pick returns the named file, or the default if it exists. missing says that the named file does
// not exist.
func pick(named, usual string) (path string, missing bool) {
	path = named
	if path == "" {
		path = usual
	}
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return "", named != ""
	}
	return path, false
}

// sign writes the signature of a public key in the form in which masters send it: without the
// newline at the end of its file, which Salt signs too, so that no minion accepts that signature.
// It returns false if a signature already exists, which is kept.
func (p *program) sign(priv, pub, path string) (bool, error) {
	k, err := crypt.LoadPrivate(priv, p.conf.SigningPass)
	if err != nil {
		return false, err
	}
	text, err := os.ReadFile(pub)
	if err != nil {
		return false, err
	}
	sig, err := k.Sign(crypt.PKCS1v15SHA1, []byte(crypt.CleanKey(string(text))))
	if err != nil {
		return false, err
	}
	err = atomicfile.Create(path, []byte(base64.StdEncoding.EncodeToString(sig)+"\n"), 0o644)
	if errors.Is(err, fs.ErrExist) {
		p.log.Warn("signature already exists; remove it to create a new one", "path", path)
		return false, nil
	}
	return err == nil, err
}
