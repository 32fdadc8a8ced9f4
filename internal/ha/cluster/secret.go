package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
)

// SecretFile, in cluster_pki_dir, has the secret since it was replaced the first
// time; until then cluster_secret is it. It comes to all members as the AES key
// does.
const SecretFile = ".secret"

// maxSecret bounds a secret in bytes.
const maxSecret = 4096

// secret is what a master must know that joins here now.
func (o *Options) secret() (string, error) {
	path := filepath.Join(o.PKIDir, SecretFile)
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return o.Secret, nil
	}
	var b []byte
	if err == nil && fi.Size() <= maxSecret {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return "", salt.Errorf(salt.Unavailable, "cannot read the secret of the cluster: %w", err)
	}
	s := strings.TrimSpace(string(b))
	if len(s) < minSecret {
		return "", salt.Errorf(salt.Invalid, "%s has no secret of at least %d characters; brine cluster rotate-secret makes a new one", path, minSecret)
	}
	return s, nil
}

// secretTag tells secrets apart without showing them.
func (c *Cluster) secretTag() string {
	s, err := c.cfg.Options.secret()
	if err != nil {
		return ""
	}
	return tagOf(s)
}

// isTag reports whether a witness that shows a tag has the secret as it is now: that
// of witnesses or, in an older version, the one by which masters join.
func (c *Cluster) isTag(tag string) bool {
	s, err := c.cfg.Options.secret()
	return err == nil && tag != "" && (tag == tagOf(WitnessSecret(s)) || tag == tagOf(s))
}

// SecretTime bounds the wait for members that are to take a new secret.
const SecretTime = 10 * time.Second

// RotateSecret replaces the secret that masters must know to join, the secret of
// session keys and the key of publications. It returns
// which members and witnesses have it then, and which will have it when they are
// back.
func (c *Cluster) RotateSecret(ctx context.Context) (have, late []string, err error) {
	if !c.cfg.Options.Isolated {
		return nil, nil, salt.Errorf(salt.Invalid, "the masters of this cluster share a folder: none joins by a secret")
	}
	var b [16]byte
	rand.Read(b[:])
	path := filepath.Join(c.cfg.Options.PKIDir, SecretFile)
	if err := atomicfile.Write(path, []byte(hex.EncodeToString(b[:])+"\n"), 0o600, true); err != nil {
		return nil, nil, salt.Errorf(salt.Unavailable, "cannot replace the secret of the cluster: %w", err)
	}
	c.log.Info("the secret was replaced that masters must know to join", "cluster", c.cfg.Options.ID)
	if err := c.renew(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, SecretTime)
	defer cancel()
	mine := c.secretTag()
	for {
		have, late = nil, nil
		away := 0
		for _, s := range c.Status(ctx) {
			switch {
			case s.Self || s.Says.Str("secret") == mine:
				have = append(have, s.ID)
				continue
			case !s.Up:
				away++
			}
			late = append(late, s.ID)
		}
		for _, w := range c.outside() {
			switch has, err := c.informed(ctx, w); {
			case has:
				have = append(have, w)
				continue
			case err != nil:
				away++
			}
			late = append(late, w)
		}
		if len(late) == away {
			return have, late, nil
		}
		select {
		case <-ctx.Done():
			return have, late, nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// CurrentSecret is the secret of the cluster whose keys are in a folder, given
// what the option cluster_secret has.
func CurrentSecret(pkiDir, option string) (string, error) {
	return (&Options{PKIDir: pkiDir, Secret: option}).secret()
}
