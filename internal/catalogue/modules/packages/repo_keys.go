package packages

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host/packages"
	"brine/internal/py/value"
)

// keyrings is the directory of keys that lines in apt's sources refer to.
const keyrings = "/etc/apt/keyrings"

// keyFunctions returns the functions for the keys that sign apt repositories.
func (p pkg) keyFunctions() []fn.Func {
	return []fn.Func{
		fn.Of("get_repo_keys", p.getKeys,
			`Return the keys that repositories of apt are trusted by: those of apt-key, or, with aptkey=False and where there is no apt-key, of a directory.`,
			fn.Example("salt '*' pkg.get_repo_keys")),
		fn.Of("add_repo_key", p.addKey, `Add such a key: from a file, a text, or a keyserver.`,
			fn.Example("salt '*' pkg.add_repo_key 'salt://apt/sources/test.key'"),
			fn.Example("salt '*' pkg.add_repo_key keyserver='keyserver.example' keyid='0000AAAA'")),
		fn.Of("del_repo_key", p.delKey, `Remove such a key, by the keyword keyid, and return that.`, fn.Example("salt '*' pkg.del_repo_key keyid=0123ABCD")),
	}
}

// keyPlace says where keys are stored.
type keyPlace struct {
	AptKey any    `salt:"aptkey" doc:"by way of apt-key(8), if there is such a program" default:"true"`
	KeyDir string `salt:"keydir" doc:"directory of keys otherwise; null: /etc/apt/keyrings" default:"null"`
}

func (k keyPlace) dir() string {
	if k.KeyDir != "" {
		return k.KeyDir
	}
	return keyrings
}

// aptKey reports whether apt-key(8) manages the keys.
func (p pkg) aptKey(v any) bool { return isTrue(v, true) && p.m.Which("apt-key") != "" }

// do runs a program; its failure is an error.
func (p pkg) do(ctx context.Context, program string, args ...string) (string, error) {
	out, err := p.m.Do(ctx, program, args...)
	if err != nil {
		return "", expected(err)
	}
	if out.Exit != 0 {
		text := strings.TrimSpace(out.Stderr + "\n" + out.Stdout)
		if text == "" {
			text = program + " failed"
		}
		return "", fn.Errorf("%s", text)
	}
	return out.Stdout, nil
}

func (p pkg) getKeys(ctx context.Context, _ *fn.Call, a keyPlace) (any, error) {
	if p.aptKey(a.AptKey) {
		out, err := p.do(ctx, "apt-key", "adv", "--batch", "--list-public-keys", "--with-fingerprint", "--with-fingerprint", "--with-colons",
			"--fixed-list-mode")
		if err != nil {
			return nil, err
		}
		return readKeys(out), nil
	}
	files, err := os.ReadDir(p.m.Path(a.dir()))
	if err != nil {
		return false, nil // as in Salt
	}
	all := value.NewDict(len(files))
	for _, f := range files {
		keys, err := p.keysOf(ctx, filepath.Join(a.dir(), f.Name()))
		if err != nil {
			return nil, err
		}
		all.Update(keys)
	}
	return all, nil
}

// keysOf lists the keys in a file, with a temporary home directory for GnuPG.
func (p pkg) keysOf(ctx context.Context, path string) (*value.Dict, error) {
	home, err := os.MkdirTemp("", "gpg")
	if err != nil {
		return nil, expected(err)
	}
	defer os.RemoveAll(home)
	out, err := p.m.Do(ctx, "gpg", "--homedir", home, "--batch", "--with-colons", "--show-keys", "--with-fingerprint", "--with-fingerprint", p.m.Path(path))
	if err != nil {
		return nil, expected(err)
	}
	return readKeys(out.Stdout), nil // a file without keys yields an empty list
}

// readKeys parses the colon-separated listing of gpg(1).
func readKeys(text string) *value.Dict {
	all := value.NewDict(4)
	var key, at *value.Dict
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), ":")
		item := func(i int) any {
			if i >= len(f) || strings.TrimSpace(f[i]) == "" {
				return nil
			}
			if n, err := strconv.ParseInt(f[i], 10, 64); err == nil {
				return n
			}
			return strings.TrimSpace(f[i])
		}
		switch {
		case f[0] == "pub", f[0] == "sub" && key != nil:
			id := ""
			if len(f) > 4 {
				id = f[4]
			}
			at = value.DictOf("algorithm", item(3), "bits", item(2), "capability", item(11), "date_creation", item(5), "date_expiration", item(6), "keyid",
				id, "validity", item(1))
			if f[0] == "sub" {
				key.Set("subkey", at)
				continue
			}
			key = at
			all.Set(id, key)
		case f[0] == "fpr" && at != nil:
			at.Set("fingerprint", item(9))
		case f[0] == "uid" && key != nil:
			key.Set("uid", item(9))
			key.Set("uid_hash", item(7))
		}
	}
	return all
}

type addKeyArgs struct {
	Path      string `salt:"path" doc:"URL or path of a file with the key" default:"null"`
	Text      string `salt:"text" doc:"the key" default:"null"`
	Keyserver string `salt:"keyserver" doc:"server to ask for the key" default:"null"`
	KeyID     any    `salt:"keyid" doc:"end of the key's number; one that is there is not added" default:"null"`
	Saltenv   string `salt:"saltenv" doc:"environment of files to fetch" default:"base"`
	keyPlace
	KeyFile string `salt:"keyfile" doc:"name of the file in the directory" default:"null"`
}

// hexKey returns a key id as a string. YAML turns some of them into numbers.
func hexKey(v any) string {
	if n, ok := v.(int64); ok {
		return strings.ToUpper(strconv.FormatInt(n, 16))
	}
	return strings.TrimPrefix(value.Str(v), "0x")
}

func (p pkg) addKey(ctx context.Context, c *fn.Call, a addKeyArgs) (any, error) {
	id := ""
	if value.Truth(a.KeyID) {
		id = hexKey(a.KeyID)
	}
	aptKey := p.aptKey(a.AptKey)
	if !aptKey {
		if st, err := os.Stat(p.m.Path(a.dir())); err != nil || !st.IsDir() {
			c.Log.Error("The directory " + a.dir() + " does not exist. Please create this directory only writable by root")
			return false, nil
		}
	}
	if id != "" {
		have, err := p.getKeys(ctx, c, a.keyPlace)
		if err != nil {
			return nil, err
		}
		d, _ := have.(*value.Dict)
		for k := range d.All() {
			if strings.HasSuffix(value.Str(k), strings.ToUpper(id)) {
				return true, nil
			}
		}
	}
	switch {
	case a.Path != "":
		path, err := c.Files.CacheFile(ctx, a.Path, a.Saltenv)
		if err != nil {
			c.Log.Error("Unable to get cached copy of file: " + a.Path)
			return false, nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, expected(err)
		}
		name := a.KeyFile
		if name == "" {
			name = filepath.Base(path)
		}
		return p.keep(ctx, b, aptKey, filepath.Join(a.dir(), name))
	case a.Text != "":
		if !aptKey && a.KeyFile == "" {
			return nil, fn.Invalidf("keyfile is needed: the name of the file that the key goes to")
		}
		return p.keep(ctx, []byte(a.Text), aptKey, filepath.Join(a.dir(), a.KeyFile))
	case a.Keyserver != "" && id == "":
		return nil, fn.Invalidf("No keyid or keyid too short for keyserver: %s", a.Keyserver)
	case a.Keyserver != "" && !aptKey && a.KeyFile == "":
		c.Log.Error("You must define the name of the key file to save the key. See keyfile argument")
		return false, nil
	case a.Keyserver != "":
		return p.receive(ctx, a.Keyserver, id, aptKey, filepath.Join(a.dir(), a.KeyFile))
	case id != "":
		return nil, fn.Invalidf("No keyserver specified for keyid: %s", id)
	}
	return nil, fn.Invalidf("a path, a text, or a keyserver with a keyid is needed")
}

// keep adds a key to apt-key's or as a file.
func (p pkg) keep(ctx context.Context, key []byte, aptKey bool, path string) (bool, error) {
	if !aptKey {
		b, err := key, error(nil)
		if !strings.HasSuffix(path, ".asc") {
			b, err = packages.Dearmor(key)
		}
		if err == nil {
			err = p.m.WriteFile(path, b)
		}
		return err == nil, expected(err)
	}
	f, err := os.CreateTemp("", "key")
	if err != nil {
		return false, expected(err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(key)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		_, err = p.do(ctx, "apt-key", "add", f.Name())
	}
	return err == nil, expected(err)
}

// receive fetches a key from a keyserver.
func (p pkg) receive(ctx context.Context, server, id string, aptKey bool, path string) (bool, error) {
	if aptKey {
		_, err := p.do(ctx, "apt-key", "adv", "--batch", "--keyserver", server, "--logger-fd", "1", "--recv-keys", id)
		return err == nil, err
	}
	home, err := os.MkdirTemp("", "gpg")
	if err != nil {
		return false, expected(err)
	}
	defer os.RemoveAll(home)
	if _, err := p.do(ctx, "gpg", "--homedir", home, "--batch", "--keyserver", server, "--recv-keys", id); err != nil {
		return false, err
	}
	temp := filepath.Join(home, "exported")
	if _, err := p.do(ctx, "gpg", "--homedir", home, "--batch", "--output", temp, "--export", id); err != nil {
		return false, err
	}
	b, err := os.ReadFile(temp)
	if err == nil {
		err = atomicfile.Replace(p.m.Path(path), 0o644, func(w io.Writer) error { _, err := w.Write(b); return err })
	}
	return err == nil, expected(err)
}

type delKeyArgs struct {
	Name any `salt:"name" doc:"ppa: name, for keyid_ppa" ignored:"keyid_ppa is not supported" default:"null"`
	keyPlace
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (p pkg) delKey(ctx context.Context, c *fn.Call, a delKeyArgs) (any, error) {
	switch {
	case value.Truth(a.Kwargs.At("keyid_ppa")):
		return nil, fn.Invalidf("keyid_ppa is not supported: name the key by keyid")
	case !a.Kwargs.Has("keyid"):
		return nil, fn.Invalidf("keyid or keyid_ppa and PPA name must be passed")
	}
	given := a.Kwargs.At("keyid")
	id := strings.ToUpper(hexKey(given))
	if p.aptKey(a.AptKey) {
		if _, err := p.do(ctx, "apt-key", "del", id); err != nil {
			return nil, fn.Errorf("Failed to remove keyid %s: %w", id, err)
		}
		return given, nil
	}
	files, err := os.ReadDir(p.m.Path(a.dir()))
	if err != nil {
		c.Log.Error("The directory " + a.dir() + " does not exist. Please create this directory only writable by root")
		return false, nil
	}
	if len(id) < 8 {
		c.Log.Error("The keyid needs to be either 8 or 16 characters")
		return false, nil
	}
	for _, f := range files {
		path := filepath.Join(a.dir(), f.Name())
		keys, err := p.keysOf(ctx, path)
		if err != nil {
			return nil, err
		}
		for k := range keys.All() {
			if strings.HasSuffix(value.Str(k), id) {
				return given, expected(os.Remove(p.m.Path(path)))
			}
		}
	}
	c.Log.Error("Could not find the key file for keyid: " + id)
	return false, nil
}

// trust installs the key of a repository: by keyid and keyserver, key_url or
// key_text. It goes to the file that signed-by names, or else to apt-key.
func (p pkg) trust(ctx context.Context, c *fn.Call, r packages.Repo, a modRepoArgs) error {
	kw := a.Kwargs
	aptKey := p.aptKey(a.AptKey)
	if r.SignedBy != "" && filepath.IsAbs(r.SignedBy) {
		aptKey = false
	}
	var err error
	switch {
	case !value.Truth(kw.At("keyid")) && kw.Str("key_url") == "" && kw.Str("key_text") == "":
		return nil
	case !aptKey && !filepath.IsAbs(r.SignedBy):
		return fn.Invalidf("missing 'signedby' option when apt-key is missing: the line needs [signed-by=/full/path] to say where the key goes")
	case value.Truth(kw.At("keyid")):
		server := kw.Str("keyserver")
		if server == "" {
			return fn.Invalidf("both keyserver and keyid options required.")
		}
		ids := []any{kw.At("keyid")}
		if l, ok := kw.At("keyid").(*value.List); ok {
			ids = l.Items
		}
		for _, id := range ids {
			args := addKeyArgs{Keyserver: server, KeyID: id, keyPlace: keyPlace{AptKey: aptKey}}
			if !aptKey {
				args.KeyDir, args.KeyFile = filepath.Dir(r.SignedBy), filepath.Base(r.SignedBy)
				if err := os.MkdirAll(p.m.Path(args.KeyDir), 0o755); err != nil {
					return expected(err)
				}
			}
			if _, err := p.addKey(ctx, c, args); err != nil {
				return fn.Errorf("Error: key retrieval failed: %w", err)
			}
		}
		return nil
	case kw.Str("key_url") != "":
		path, err := c.Files.CacheFile(ctx, kw.Str("key_url"), a.Saltenv)
		if err != nil {
			return fn.Errorf("Error: file not found: %s: %w", kw.Str("key_url"), err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return expected(err)
		}
		if _, err = p.keep(ctx, b, aptKey, r.SignedBy); err != nil {
			return fn.Errorf("Error: failed to add key from %s: %w", kw.Str("key_url"), err)
		}
		return nil
	}
	if _, err = p.keep(ctx, []byte(kw.Str("key_text")), aptKey, r.SignedBy); err != nil {
		return fn.Errorf("Error: failed to add key:\n%s\n%w", kw.Str("key_text"), err)
	}
	return nil
}
