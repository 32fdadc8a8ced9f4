package wheel

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

type key struct{ Deps }

// of returns k with the keys of the caller.
func (k key) of(ctx context.Context) key {
	if keys, ok := ctx.Value(keysOf{}).(Keys); ok {
		k.Keys = keys
	}
	return k
}

func init() { modules.Register("key", keyModule) }

func keyModule(d Deps) fn.Module {
	k := key{d}
	return fn.Module{Name: "key", Doc: `The keys of minions.`, Funcs: []fn.Func{
		fn.Of("list", k.list, `Return the ids of keys in one state, or in all.`),
		fn.Of("list_all", k.listAll, `Return the ids of all keys by their states, and the master's own key files.`),
		fn.Of("list_elsewhere", k.elsewhere, `Return the keys at the masters of the option hot_masters: [id, state, fingerprint] by master (Brine only).`),
		fn.Of("decide_elsewhere", k.decide, `Accept, reject or delete keys at the masters of the option hot_masters (Brine only).`),
		fn.Of("name_match", k.nameMatch, `Return the ids of keys that match a glob, by their states.`),
		fn.Of("accept", k.accept, `Accept the pending keys that match a glob, and return all matching keys.`),
		fn.Of("accept_dict", k.acceptDict, `Accept the pending keys of a map of states to ids.`, fn.Params("match", "include_rejected", "include_denied")),
		fn.Of("reject", k.reject, `Reject the pending keys that match a glob, and return all matching keys.`),
		fn.Of("reject_dict", k.rejectDict, `Reject the pending keys of a map of states to ids.`, fn.Params("match", "include_accepted", "include_denied")),
		fn.Of("delete", k.remove, `Delete the keys that match a glob, in every state, and return those that are left.`),
		fn.Of("delete_dict", k.removeDict, `Delete the keys of a map of states to ids.`),
		fn.Of("key_str", k.text, `Return the public keys that match a glob.`),
		fn.Of("print", k.text, `Return the public keys that match a glob.`),
		fn.Of("finger", k.finger, `Return the fingerprints of the keys that match a glob, including the master's own.`),
		fn.Of("finger_master", k.fingerMaster, `Return the fingerprints of the master's own keys.`),
		fn.Of("gen", k.gen, `Create a key pair for a minion and return it; nothing is stored.`, fn.Ignored("the caller names the minion that gets the keys", "id_")),
		fn.Of("master_key_str", k.masterKey, `Return the master's public key.`),
		fn.Of("gen_keys", k.genKeys, `Create a key pair, store it as NAME.pem and NAME.pub in pki_dir and return its fingerprint.
			An existing pair is not replaced, and keydir must be pki_dir.`),
		fn.Of("gen_accept", k.genAccept, `Create a key pair for a minion, accept its public key and return the pair.`),
	}}
}

// order is the order in which Salt lists the states of keys.
var order = []keystore.State{keystore.Accepted, keystore.Pending, keystore.Rejected, keystore.Denied}

// found are ids by state, in order.
type found map[keystore.State][]string

func (f found) dict(empty bool) *value.Dict {
	d := value.NewDict(len(f))
	for _, st := range order {
		if ids := f[st]; len(ids) > 0 || empty {
			d.Set(st.DirName(), value.Strings(ids))
		}
	}
	return d
}

// globs reads a glob, or several as a list or separated by commas.
func globs(match any) (fits func(string) bool) {
	var all []target.Glob
	words := []any{match}
	if l, ok := match.(*value.List); ok {
		words = l.Items
	}
	for _, w := range words {
		for g := range strings.SplitSeq(value.Str(w), ",") {
			all = append(all, target.ParseGlob(g))
		}
	}
	return func(name string) bool {
		return slices.ContainsFunc(all, func(g target.Glob) bool { return g.Match(name) })
	}
}

func (k key) match(match any) (found, error) {
	all, err := k.Keys.List()
	if err != nil {
		return nil, err
	}
	fits, out := globs(match), found{}
	for st, ids := range all {
		out[st] = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !fits(id) })
	}
	return out, nil
}

// named reads a map of states to ids.
func named(m any) (found, error) {
	d, ok := m.(*value.Dict)
	if !ok {
		return nil, fn.Errorf("match must be a map of minions, minions_pre, minions_rejected or minions_denied to lists of ids")
	}
	out := found{}
	for _, st := range order {
		for _, id := range d.List(st.DirName()) {
			out[st] = append(out[st], value.Str(id))
		}
	}
	return out, nil
}

type statesArgs struct {
	Match string `salt:"match" doc:"acc (accepted), pre or un (pending), rej (rejected), den (denied) or all; a prefix suffices"`
}

func (k key) list(_ context.Context, _ *fn.Call, a statesArgs) (*value.Dict, error) {
	all, err := k.Keys.List()
	if err != nil {
		return nil, err
	}
	for prefix, st := range map[string]keystore.State{"acc": keystore.Accepted, "pre": keystore.Pending, "un": keystore.Pending,
		"rej": keystore.Rejected, "den": keystore.Denied} {
		if strings.HasPrefix(a.Match, prefix) {
			return value.DictOf(st.DirName(), value.Strings(all[st])), nil
		}
	}
	if strings.HasPrefix(a.Match, "all") {
		return k.whole(all)
	}
	return value.NewDict(0), nil
}

func (k key) listAll(context.Context, *fn.Call, none) (*value.Dict, error) {
	all, err := k.Keys.List()
	if err != nil {
		return nil, err
	}
	return k.whole(all)
}

// whole returns the ids of all keys, and the names of the master's own key files.
func (k key) whole(all found) (*value.Dict, error) {
	d := all.dict(true)
	files, err := k.ownFiles()
	d.Set("local", value.Strings(files))
	return d, err
}

// ownFiles are the names of the master's own key files, sorted without regard
// to case.
func (k key) ownFiles() ([]string, error) {
	entries, err := os.ReadDir(k.Keys.Dir())
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if n := e.Name(); strings.HasSuffix(n, ".pem") || strings.HasSuffix(n, ".pub") {
			names = append(names, n)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	return names, nil
}

type matchArgs struct {
	Match any `salt:"match" doc:"glob of ids, or several with commas"`
}

func (k key) nameMatch(_ context.Context, _ *fn.Call, a matchArgs) (*value.Dict, error) {
	f, err := k.match(a.Match)
	return f.dict(false), err
}

type acceptArgs struct {
	Match    any  `salt:"match" doc:"glob of ids, or several with commas"`
	Rejected bool `salt:"include_rejected" doc:"also rejected keys" default:"false"`
	Denied   bool `salt:"include_denied" doc:"also denied keys" default:"false"`
}

func (k key) accept(ctx context.Context, _ *fn.Call, a acceptArgs) (*value.Dict, error) {
	f, err := k.match(a.Match)
	if err != nil {
		return nil, err
	}
	if err := k.of(ctx).acceptAll(f, a); err != nil {
		return nil, err
	}
	return k.nameMatch(ctx, nil, matchArgs{a.Match})
}

func (k key) acceptDict(ctx context.Context, _ *fn.Call, a acceptArgs) (*value.Dict, error) {
	f, err := named(a.Match)
	if err != nil {
		return nil, err
	}
	if err := k.of(ctx).acceptAll(f, a); err != nil {
		return nil, err
	}
	return k.still(f)
}

func (k key) acceptAll(f found, a acceptArgs) error {
	from := []keystore.State{keystore.Pending}
	if a.Rejected {
		from = append(from, keystore.Rejected)
	}
	if a.Denied {
		from = append(from, keystore.Denied)
	}
	return k.each(f, from, "accept", func(st keystore.State, id string) error {
		pub, err := k.Keys.Read(st, id)
		if err != nil {
			return err
		}
		if _, err := crypt.ParsePublic([]byte(pub)); err != nil {
			return fn.Errorf("the key of %s is not an RSA public key: %w", id, err)
		}
		return k.Keys.Move(id, st, keystore.Accepted)
	})
}

type rejectArgs struct {
	Match    any  `salt:"match" doc:"glob of ids, or several with commas"`
	Accepted bool `salt:"include_accepted" doc:"also accepted keys" default:"false"`
	Denied   bool `salt:"include_denied" doc:"also denied keys" default:"false"`
}

func (k key) reject(ctx context.Context, _ *fn.Call, a rejectArgs) (*value.Dict, error) {
	f, err := k.match(a.Match)
	if err != nil {
		return nil, err
	}
	if err := k.of(ctx).rejectAll(f, a); err != nil {
		return nil, err
	}
	return k.nameMatch(ctx, nil, matchArgs{a.Match})
}

func (k key) rejectDict(ctx context.Context, _ *fn.Call, a rejectArgs) (*value.Dict, error) {
	f, err := named(a.Match)
	if err != nil {
		return nil, err
	}
	if err := k.of(ctx).rejectAll(f, a); err != nil {
		return nil, err
	}
	return k.still(f)
}

func (k key) rejectAll(f found, a rejectArgs) error {
	from := []keystore.State{keystore.Pending}
	if a.Accepted {
		from = append(from, keystore.Accepted)
	}
	if a.Denied {
		from = append(from, keystore.Denied)
	}
	return k.each(f, from, "reject", func(st keystore.State, id string) error {
		return k.Keys.Move(id, st, keystore.Rejected)
	})
}

func (k key) remove(ctx context.Context, _ *fn.Call, a matchArgs) (*value.Dict, error) {
	f, err := k.match(a.Match)
	if err != nil {
		return nil, err
	}
	if err := k.of(ctx).removeAll(f); err != nil {
		return nil, err
	}
	return k.nameMatch(ctx, nil, a)
}

func (k key) removeDict(ctx context.Context, _ *fn.Call, a matchArgs) (*value.Dict, error) {
	f, err := named(a.Match)
	if err != nil {
		return nil, err
	}
	if err := k.of(ctx).removeAll(f); err != nil {
		return nil, err
	}
	return k.still(f)
}

func (k key) removeAll(f found) error {
	if err := k.each(f, order, "delete", k.Keys.Delete); err != nil {
		return err
	}
	left, err := k.Keys.List()
	if err != nil {
		return err
	}
	for _, st := range order {
		for _, id := range f[st] {
			if !slices.ContainsFunc(order, func(st keystore.State) bool { return slices.Contains(left[st], id) }) {
				err = errors.Join(err, k.Forget(id))
			}
		}
	}
	return err
}

// each applies a change to the keys in one of the states. Keys that have
// disappeared are not an error, and a failure does not stop the others.
func (k key) each(f found, from []keystore.State, act string, do func(keystore.State, string) error) error {
	var failed error
	revoked := false
	for _, st := range from {
		for _, id := range f[st] {
			err := do(st, id)
			if salt.KindOf(err) == salt.NotFound {
				continue
			}
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			revoked = revoked || st == keystore.Accepted
			k.Changed(act, id)
		}
	}
	if revoked {
		k.Revoked()
	}
	return failed
}

// still returns the current states of the ids in a map.
func (k key) still(f found) (*value.Dict, error) {
	all, err := k.Keys.List()
	if err != nil {
		return nil, err
	}
	out := found{}
	for _, now := range order {
		for _, id := range all[now] {
			if slices.ContainsFunc(order, func(st keystore.State) bool { return slices.Contains(f[st], id) }) {
				out[now] = append(out[now], id)
			}
		}
	}
	return out.dict(false), nil
}

// collect returns state -> id -> the result of show for the key.
func (k key) collect(match any, show func(pem string) string) (*value.Dict, error) {
	f, err := k.match(match)
	if err != nil {
		return nil, err
	}
	d := value.NewDict(len(f))
	for _, st := range order {
		keys := value.NewDict(len(f[st]))
		for _, id := range f[st] {
			pem, err := k.Keys.Read(st, id)
			if salt.KindOf(err) == salt.NotFound {
				continue
			}
			if err != nil {
				return nil, err
			}
			keys.Set(id, show(pem))
		}
		if keys.Len() > 0 {
			d.Set(st.DirName(), keys)
		}
	}
	return d, nil
}

func (k key) text(_ context.Context, _ *fn.Call, a matchArgs) (*value.Dict, error) {
	return k.collect(a.Match, func(pem string) string { return pem })
}

type fingerArgs struct {
	Match    any    `salt:"match" doc:"glob of ids, or several with commas"`
	HashType string `salt:"hash_type" doc:"hash of the fingerprint; empty: as configured" default:""`
}

func (a *fingerArgs) hash(usual string) (string, error) {
	if a.HashType == "" {
		return usual, nil
	}
	if crypt.NewHash(a.HashType) == nil {
		return "", fn.Errorf("unknown hash_type %q", a.HashType)
	}
	return a.HashType, nil
}

func (k key) finger(_ context.Context, _ *fn.Call, a fingerArgs) (*value.Dict, error) {
	hash, err := a.hash(k.HashType)
	if err != nil {
		return nil, err
	}
	d, err := k.collect(a.Match, func(pem string) string { return crypt.Fingerprint([]byte(pem), hash) })
	if err != nil {
		return nil, err
	}
	return k.ownFingers(d, globs(a.Match), hash)
}

type fingerMasterArgs struct {
	HashType string `salt:"hash_type" doc:"hash of the fingerprint; empty: as configured" default:""`
}

func (k key) fingerMaster(_ context.Context, _ *fn.Call, a fingerMasterArgs) (*value.Dict, error) {
	hash, err := (&fingerArgs{HashType: a.HashType}).hash(k.HashType)
	if err != nil {
		return nil, err
	}
	return k.ownFingers(value.NewDict(1), globs("master.p*"), hash)
}

func (k key) ownFingers(d *value.Dict, fits func(string) bool, hash string) (*value.Dict, error) {
	names, err := k.ownFiles()
	if err != nil {
		return nil, err
	}
	own := value.NewDict(len(names))
	for _, n := range names {
		if !fits(n) {
			continue
		}
		pem, err := os.ReadFile(filepath.Join(k.Keys.Dir(), n))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		own.Set(n, crypt.Fingerprint(pem, hash))
	}
	if own.Len() > 0 {
		d.Set("local", own)
	}
	return d, nil
}

type genArgs struct {
	ID      any `salt:"id_" doc:"id of the minion" default:"null"`
	KeySize any `salt:"keysize" doc:"size in bits, at least 2048" default:"2048"`
}

// maxKeySize bounds a key in bits: a larger one takes minutes to create.
const maxKeySize = 8192

func (k key) pair(a genArgs) (priv, pub string, err error) {
	bits, ok := a.KeySize.(int64)
	if !ok || bits < 2048 || bits > maxKeySize {
		return "", "", fn.Errorf("keysize must be a number from 2048 to %d", maxKeySize)
	}
	p, err := crypt.GenerateKey(int(bits))
	if err != nil {
		return "", "", err
	}
	return string(p.PEM()), string(p.Public().PEM()), nil
}

func (k key) gen(_ context.Context, _ *fn.Call, a genArgs) (*value.Dict, error) {
	priv, pub, err := k.pair(a)
	if err != nil {
		return nil, err
	}
	return value.DictOf("priv", priv, "pub", pub), nil
}

type genAcceptArgs struct {
	ID      string `salt:"id_" doc:"id of the minion"`
	KeySize any    `salt:"keysize" doc:"size in bits, at least 2048" default:"2048"`
	Force   bool   `salt:"force" doc:"replace an accepted key of this id" default:"false"`
}

func (k key) genAccept(ctx context.Context, _ *fn.Call, a genAcceptArgs) (*value.Dict, error) {
	if err := salt.CheckID(a.ID); err != nil {
		return nil, fn.Errorf("%w", err)
	}
	_, err := k.Keys.Read(keystore.Accepted, a.ID)
	if err == nil && !a.Force {
		return value.NewDict(0), nil // Salt's result for an existing key
	}
	if err != nil && salt.KindOf(err) != salt.NotFound {
		return nil, err
	}
	priv, pub, err := k.pair(genArgs{KeySize: a.KeySize})
	if err != nil {
		return nil, err
	}
	if err := k.of(ctx).Keys.Put(keystore.Accepted, a.ID, pub); err != nil {
		return nil, err
	}
	k.Changed("accept", a.ID)
	return value.DictOf("priv", priv, "pub", pub), nil
}

func (k key) masterKey(context.Context, *fn.Call, none) (*value.Dict, error) {
	const name = "master.pub"
	b, err := os.ReadFile(filepath.Join(k.Keys.Dir(), name))
	if err != nil {
		return nil, fn.Errorf("cannot read the master's public key: %w", err)
	}
	return value.DictOf("local", value.DictOf(name, string(b))), nil
}

type genKeysArgs struct {
	KeyDir  any `salt:"keydir" doc:"directory; must be pki_dir" default:"null"`
	KeyName any `salt:"keyname" doc:"name of the files; null: minion" default:"null"`
	KeySize any `salt:"keysize" doc:"size in bits, at least 2048; null: as configured" default:"null"`
	User    any `salt:"user" ignored:"the files belong to the master's user" default:"null"`
}

// genKeys writes to pki_dir only: a caller that could choose the directory
// could replace other keys.
func (k key) genKeys(_ context.Context, _ *fn.Call, a genKeysArgs) (string, error) {
	dir := k.Keys.Dir()
	if given, ok := a.KeyDir.(string); a.KeyDir != nil && a.KeyDir != "" && (!ok || filepath.Clean(given) != filepath.Clean(dir)) {
		return "", fn.Errorf("keydir must be pki_dir (%s): create other pairs with salt-key --gen-keys on the master", dir)
	}
	name := "minion"
	if a.KeyName != nil && a.KeyName != "" {
		name = value.Str(a.KeyName)
	}
	if err := salt.CheckID(name); err != nil || filepath.Base(name) != name {
		return "", fn.Errorf("keyname %.100q is not a valid name of a key pair", name)
	}
	if a.KeySize == nil {
		a.KeySize = int64(max(k.KeySize, 2048))
	}
	base := filepath.Join(dir, name)
	for _, suffix := range []string{".pem", ".pub"} {
		if _, err := os.Lstat(base + suffix); !errors.Is(err, fs.ErrNotExist) {
			return "", fn.Errorf("%s exists already and is not replaced", base+suffix)
		}
	}
	priv, pub, err := k.pair(genArgs{KeySize: a.KeySize})
	if err != nil {
		return "", err
	}
	if err := atomicfile.Create(base+".pem", []byte(priv), 0o400); err != nil {
		return "", fn.Errorf("cannot store the key: %w", err)
	}
	if err := atomicfile.Create(base+".pub", []byte(pub), 0o644); err != nil {
		return "", fn.Errorf("cannot store the public key: %w", err)
	}
	return crypt.Fingerprint([]byte(pub), k.HashType), nil
}
