package migrate

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/store/keystore"
)

// keyLooks is the maximum number of passes over the source; a pass follows only if the last one found
// changes.
const keyLooks = 5

// Keys copies the keys of minions with their states, and then those that arrived or changed state meanwhile.
// If a pending key at the target is accepted or rejected at the source, it gets that state. All other keys
// at the target stay.
func Keys(ctx context.Context, from, to *keystore.Store, o Options) (r Report, err error) {
	c := keyCopy{from: from, to: to, o: o, seen: map[keyPlace]bool{}, counted: map[keyPlace]bool{}}
	for range keyLooks {
		news, err := c.look(ctx, &r)
		if err != nil || news == 0 || o.DryRun {
			return r, err
		}
	}
	return r, nil
}

type keyPlace struct {
	st keystore.State
	id string
}

type keyCopy struct {
	from, to *keystore.Store
	o        Options
	seen     map[keyPlace]bool
	// The state of a place in counted is set only for denied keys, whose ids may have another key.
	counted map[keyPlace]bool
}

// look copies new keys, and returns their number.
func (c *keyCopy) look(ctx context.Context, r *Report) (news int, err error) {
	lists, err := c.from.List()
	if err != nil {
		return 0, err
	}
	total, done := 0, 0
	for _, ids := range lists {
		total += len(ids)
	}
	for _, st := range keystore.States {
		for _, id := range lists[st] {
			if err := ended(ctx); err != nil {
				return news, err
			}
			done++
			if c.seen[keyPlace{st, id}] {
				continue
			}
			c.seen[keyPlace{st, id}] = true
			news++
			pub, err := c.from.Read(st, id)
			if salt.KindOf(err) == salt.NotFound && err != nil {
				continue // deleted or moved; the next pass finds it
			}
			c.one(st, id, pub, err, r)
			c.o.progress("keys", done, total)
		}
	}
	return news, nil
}

// one copies a key. A key copied in two states counts once.
func (c *keyCopy) one(st keystore.State, id, pub string, err error, r *Report) {
	p := keyPlace{keystore.None, id}
	if st == keystore.Denied {
		p.st = st
	}
	before := *r
	r.Found++
	if err == nil {
		err = copyKey(c.to, st, id, pub, c.o, r)
	}
	if err != nil {
		r.fail("%s: %v", id, err)
	} else if c.counted[p] {
		r.Found, r.Copied, r.Same, r.Verified = before.Found, before.Copied, before.Same, before.Verified
	}
	c.counted[p] = true
}

func copyKey(to *keystore.Store, st keystore.State, id, pub string, o Options, r *Report) error {
	same := func(other string) bool { return crypt.CleanKey(other) == crypt.CleanKey(pub) }
	// Denied keys are of ids that may have another key; other keys have one state.
	thereSt, there := keystore.None, ""
	var err error
	if st == keystore.Denied {
		if there, err = to.Read(st, id); err == nil {
			thereSt = st
		} else if salt.KindOf(err) != salt.NotFound {
			return err
		}
		err = nil
	} else if thereSt, there, err = to.Lookup(id); err != nil {
		return err
	}
	switch {
	case thereSt == st && same(there):
		r.Same++
		r.Verified++
		return nil
	case thereSt == keystore.None:
		if !o.DryRun {
			err = to.Add(st, id, pub)
		}
	case thereSt == keystore.Pending && same(there):
		if !o.DryRun {
			err = to.Move(id, keystore.Pending, st)
		}
	case same(there):
		r.keep("%s: its key is %s at the source, and stays %s at the target", id, st, thereSt)
		r.Verified++
		return nil
	default:
		r.keep("%s: the target has another key, %s, and keeps it; that of the source is %s", id, thereSt, st)
		r.Verified++
		return nil
	}
	if err != nil {
		return err
	}
	r.Copied++
	if o.DryRun {
		return nil
	}
	if there, err := to.Read(st, id); err != nil || !same(there) {
		return salt.Errorf(salt.Internal, "its key is not at the target as it was written: %v", err)
	}
	r.Verified++
	return nil
}

// KeyPair copies the master's key pair, fromDir/master.pem, to toDir/NAME.pem, with its public half. An
// existing key stays; if it differs, it is reported as kept.
func KeyPair(fromDir, toDir, name, pass string, o Options) (r Report, err error) {
	r.Found = 1
	k, err := crypt.LoadPrivate(filepath.Join(fromDir, "master.pem"), pass)
	if err != nil {
		return r, err
	}
	private, err := os.ReadFile(filepath.Join(fromDir, "master.pem"))
	if err != nil {
		return r, err
	}
	path := filepath.Join(toDir, name+".pem")
	there, err := crypt.LoadPrivate(path, pass)
	switch {
	case err == nil && there.Public().Equal(k.Public()):
		r.Same, r.Verified = 1, 1
		return r, nil
	case err == nil:
		r.keep("%s is another key, and stays: minions that know the master of the source will not trust it", path)
		return r, nil
	case !errors.Is(err, fs.ErrNotExist):
		return r, err
	}
	r.Copied = 1
	if o.DryRun {
		return r, nil
	}
	if err := os.MkdirAll(toDir, 0o700); err != nil {
		return r, salt.Errorf(salt.Unavailable, "cannot create the key directory: %w", err)
	}
	if err := atomicfile.Create(path, private, 0o400); err != nil {
		return r, err
	}
	// If this fails, the master derives the public key from the private key.
	if err := crypt.WritePublic(filepath.Join(toDir, name+".pub"), k.Public()); err != nil {
		return r, err
	}
	r.Verified = 1
	return r, nil
}
