package accounts

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/account"
	"brine/internal/host/sshkeys"
	"brine/internal/py/value"
)

type ssh struct{ m *host.Machine }

func init() { units.Register("ssh", sshModule) }

func sshModule(m *host.Machine) fn.Module {
	s := ssh{m}
	return fn.Module{Name: "ssh", Doc: `Keys that SSH trusts.`, Funcs: []fn.Func{
		fn.Of("auth_keys", s.authKeys, `Return the keys with which users may log in.`, fn.Example("salt '*' ssh.auth_keys root")),
		fn.Of("check_key", s.checkKey, `Say whether a key would have to be added or updated, or exists.`,
			fn.Example("salt '*' ssh.check_key root AAAA== ssh-rsa me@host '[]'")),
		fn.Of("check_key_file", s.checkKeyFile, `Say of all keys of a file what ssh.check_key says.`,
			fn.Example("salt '*' ssh.check_key_file root salt://ssh/keyfile")),
		fn.Of("key_is_encrypted", s.encrypted, `Say whether the file of a private key wants a passphrase.`,
			fn.Example("salt '*' ssh.key_is_encrypted /root/id_rsa")),
		fn.Of("set_auth_key", s.setKey, `Let a key log in as a user: new, replace, no change or what is wrong.`,
			fn.Example("salt '*' ssh.set_auth_key root AAAA== enc=dsa")),
		fn.Of("set_auth_key_from_file", s.setFile, `Let all keys of a file log in as a user.
			The keyword options replaces those in the file.`, fn.Example("salt '*' ssh.set_auth_key_from_file root salt://ssh_keys/root.id_rsa.pub")),
		fn.Of("rm_auth_key", s.rmKey, `Remove a key from those that may log in as a user.`, fn.Example("salt '*' ssh.rm_auth_key root AAAA==")),
		fn.Of("rm_auth_key_from_file", s.rmFile, `Remove all keys of a file from those that may log in as a user.`,
			fn.Example("salt '*' ssh.rm_auth_key_from_file root salt://ssh_keys/root.id_rsa.pub")),
		fn.Of("user_keys", s.userKeys, `Return the key pairs of users.`, fn.Example("salt '*' ssh.user_keys user=root prvfile=False")),
		fn.Of("host_keys", s.hostKeys, `Return the keys of this machine.`, fn.Example("salt '*' ssh.host_keys private=False")),
		fn.Of("get_known_host_entries", s.known, `Return what is known of a host.`, fn.Example("salt '*' ssh.get_known_host_entries root example.com")),
		fn.Of("recv_known_host_entries", s.receive, `Ask a host for its keys.`,
			fn.Example("salt '*' ssh.recv_known_host_entries example.com enc=ssh-ed25519")),
		fn.Of("check_known_host", s.checkHost, `Say whether the key of a host would have to be added or updated, or exists.`,
			fn.Example("salt '*' ssh.check_known_host root example.com key='AAAA'")),
		fn.Of("set_known_host", s.setHost, `Trust the key of a host: one that is given, or one that the host sends and that has a fingerprint.`,
			fn.Example("salt '*' ssh.set_known_host root example.com fingerprint='aa:bb'")),
		fn.Of("rm_known_host", s.rmHost, `Forget the keys of a host.`, fn.Example("salt '*' ssh.rm_known_host root example.com")),
		fn.Of("hash_known_hosts", s.hash, `Hide the names of hosts.`, fn.Example("salt '*' ssh.hash_known_hosts root")),
	}}
}

// file returns a user and the path of one of the user's files.
func (s ssh) file(ctx context.Context, user, config string) (account.User, string, error) {
	u, ok := account.ByName(ctx, s.m, user)
	if !ok {
		return u, "", fn.Errorf("User '%s' does not exist", user)
	}
	path, err := sshkeys.File(u, config)
	if err != nil {
		return u, "", fn.Errorf("%w", err)
	}
	return u, path, nil
}

type authKeysArgs struct {
	User   any    `salt:"user" doc:"user, or list of users; null for all" default:"null"`
	Config string `salt:"config" doc:"the file, below the home directory" default:".ssh/authorized_keys"`
	Hash   any    `salt:"fingerprint_hash_type" doc:"hash of the fingerprints; null for sha256" default:"null"`
}

func hashName(v any) string {
	if v == nil {
		return ""
	}
	return value.Str(v)
}

func (s ssh) authKeys(ctx context.Context, _ *fn.Call, a authKeysArgs) (*value.Dict, error) {
	users, single := s.users(ctx, a.User)
	out := value.NewDict(len(users))
	for _, name := range users {
		_, path, err := s.file(ctx, name, a.Config)
		if err != nil || !s.m.IsFile(path) {
			continue
		}
		keys, err := s.read(path, hashName(a.Hash))
		if err != nil {
			return nil, err
		}
		out.Set(name, keys)
	}
	if single {
		if d := out.Dict(users[0]); d != nil {
			return d, nil
		}
		return value.NewDict(0), nil
	}
	return out, nil
}

func (s ssh) users(ctx context.Context, v any) (names []string, single bool) {
	switch x := v.(type) {
	case *value.List:
		for _, it := range x.Items {
			names = append(names, value.Str(it))
		}
	case string:
		if x != "" {
			return []string{x}, true
		}
	}
	if len(names) == 0 {
		for _, u := range account.Users(ctx, s.m) {
			names = append(names, u.Name)
		}
	}
	return names, false
}

// read returns the valid keys of a file, indexed by key.
func (s ssh) read(path, hash string) (*value.Dict, error) {
	keys, err := sshkeys.Read(s.m, path)
	if err != nil {
		return nil, fn.Errorf("Problem reading ssh key file %s", path)
	}
	return shownKeys(keys, hash)
}

func shownKeys(keys []sshkeys.Key, hash string) (*value.Dict, error) {
	if _, err := sshkeys.Fingerprint("AAAA", hash); err != nil {
		return nil, fn.Errorf("The fingerprint_hash_type %s is not supported.", hash)
	}
	out := value.NewDict(len(keys))
	for _, k := range keys {
		if print, err := sshkeys.Fingerprint(k.Key, hash); err == nil {
			out.Set(k.Key, value.DictOf("enc", k.Type, "comment", k.Comment, "options", value.Strings(k.Options), "fingerprint", print))
		}
	}
	return out, nil
}

type checkKeyArgs struct {
	User    string `salt:"user" doc:"user"`
	Key     string `salt:"key" doc:"the key in base64"`
	Enc     string `salt:"enc" doc:"type of the key"`
	Comment any    `salt:"comment" doc:"comment of the key"`
	Options any    `salt:"options" doc:"list of options"`
	Config  string `salt:"config" doc:"the file, below the home directory" default:".ssh/authorized_keys"`
	Cache   any    `salt:"cache_keys" ignored:"keys are always read again" default:"null"`
	Hash    any    `salt:"fingerprint_hash_type" ignored:"whole keys are compared, not fingerprints" default:"null"`
}

func keyOf(key, enc string, comment, options any) (sshkeys.Key, error) {
	typ, err := sshkeys.TypeOf(enc)
	if err != nil {
		return sshkeys.Key{}, fn.Errorf("Incorrect encryption key type '%s'.", enc)
	}
	k := sshkeys.Key{Type: typ, Key: key}
	if comment != nil {
		k.Comment = value.Str(comment)
	}
	if value.Truth(options) {
		k.Options = list(options)
	}
	return k, nil
}

func (s ssh) checkKey(ctx context.Context, _ *fn.Call, a checkKeyArgs) (string, error) {
	k, err := keyOf(a.Key, a.Enc, a.Comment, a.Options)
	if err != nil {
		return "", err
	}
	return s.check(ctx, a.User, a.Config, k)
}

func (s ssh) check(ctx context.Context, user, config string, k sshkeys.Key) (string, error) {
	_, path, err := s.file(ctx, user, config)
	if err != nil {
		return "add", nil
	}
	keys, err := sshkeys.Read(s.m, path)
	if err != nil {
		return "", fn.Errorf("%w", err)
	}
	for _, have := range keys {
		if have.Key == k.Key && have.String() == k.String() {
			return "exists", nil
		}
		if have.Key == k.Key {
			return "update", nil
		}
	}
	return "add", nil
}

type keyFileArgs struct {
	User    string `salt:"user" doc:"user"`
	Source  string `salt:"source" doc:"file with keys, a path or URL"`
	Config  string `salt:"config" doc:"the file, below the home directory" default:".ssh/authorized_keys"`
	Saltenv string `salt:"saltenv" doc:"environment of the source" default:"base"`
	Hash    any    `salt:"fingerprint_hash_type" ignored:"whole keys are compared, not fingerprints" default:"null"`
}

// source fetches a file of keys.
func (s ssh) source(ctx context.Context, c *fn.Call, source, saltenv string) ([]sshkeys.Key, error) {
	path, err := c.Files.CacheFile(ctx, source, saltenv)
	if err != nil {
		return nil, fn.Errorf("cannot fetch %s: %w", source, err)
	}
	keys, err := sshkeys.Read(&host.Machine{}, path)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return slices.DeleteFunc(keys, func(k sshkeys.Key) bool { _, err := sshkeys.Fingerprint(k.Key, ""); return err != nil }), nil
}

func (s ssh) checkKeyFile(ctx context.Context, c *fn.Call, a keyFileArgs) (*value.Dict, error) {
	keys, err := s.source(ctx, c, a.Source, a.Saltenv)
	if err != nil {
		return value.NewDict(0), nil
	}
	out := value.NewDict(len(keys))
	for _, k := range keys {
		word, err := s.check(ctx, a.User, a.Config, k)
		if err != nil {
			return nil, err
		}
		out.Set(k.Key, word)
	}
	return out, nil
}

type keyPathArgs struct {
	Key string `salt:"key" doc:"path of the private key"`
}

var privateKey = regexp.MustCompile(`BEGIN (?:\w+\s)*PRIVATE KEY`)

// encrypted looks for the word ENCRYPTED in the file, as Salt does. It does
// not detect encryption in OpenSSH's own key format.
func (s ssh) encrypted(_ context.Context, _ *fn.Call, a keyPathArgs) (bool, error) {
	b, err := s.m.ReadFile(a.Key)
	if err != nil {
		return false, fn.Errorf("cannot read the key: %w", err)
	}
	if !privateKey.Match(b) {
		return false, fn.Errorf("%s is not a private key", a.Key)
	}
	return bytes.Contains(b, []byte("ENCRYPTED")), nil
}

type setKeyArgs struct {
	User    string `salt:"user" doc:"user"`
	Key     string `salt:"key" doc:"the key in base64"`
	Enc     string `salt:"enc" doc:"type of the key" default:"ssh-rsa"`
	Comment any    `salt:"comment" doc:"comment of the key" default:""`
	Options any    `salt:"options" doc:"list of options" default:"null"`
	Config  string `salt:"config" doc:"the file, below the home directory" default:".ssh/authorized_keys"`
	Cache   any    `salt:"cache_keys" ignored:"keys are always read again" default:"null"`
	Hash    any    `salt:"fingerprint_hash_type" ignored:"whole keys are compared, not fingerprints" default:"null"`
}

func (s ssh) setKey(ctx context.Context, _ *fn.Call, a setKeyArgs) (string, error) {
	if len(strings.Fields(a.Key)) > 1 {
		return "invalid", nil
	}
	k, err := keyOf(a.Key, a.Enc, a.Comment, a.Options)
	if err != nil {
		return "", err
	}
	return s.set(ctx, a.User, a.Config, k)
}

func (s ssh) set(ctx context.Context, user, config string, k sshkeys.Key) (string, error) {
	if _, err := sshkeys.Fingerprint(k.Key, ""); err != nil {
		return "Invalid public key", nil
	}
	u, path, err := s.file(ctx, user, config)
	if err != nil || strings.HasPrefix(path, u.Home+"/") && !s.m.IsDir(u.Home) {
		return "fail", nil
	}
	done, err := sshkeys.Set(s.m, u, path, k)
	if err != nil {
		return "", fn.Errorf("Could not write to key file: %w", err)
	}
	return done, nil
}

type setFileArgs struct {
	keyFileArgs
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (s ssh) setFile(ctx context.Context, c *fn.Call, a setFileArgs) (string, error) {
	keys, err := s.source(ctx, c, a.Source, a.Saltenv)
	if err != nil {
		return "", fn.Errorf("Failed to pull key file from salt file server")
	}
	if len(keys) == 0 {
		return "fail", nil
	}
	best := "no change"
	for _, k := range keys {
		if o := a.Kwargs.At("options"); value.Truth(o) {
			k.Options = list(o)
		}
		done, err := s.set(ctx, a.User, a.Config, k)
		if err != nil {
			return "", err
		}
		order := []string{"no change", "new", "replace", "fail"}
		if slices.Index(order, done) > slices.Index(order, best) {
			best = done
		}
	}
	return best, nil
}

type rmKeyArgs struct {
	User   string `salt:"user" doc:"user"`
	Key    string `salt:"key" doc:"the key in base64"`
	Config string `salt:"config" doc:"the file, below the home directory" default:".ssh/authorized_keys"`
	Hash   any    `salt:"fingerprint_hash_type" ignored:"whole keys are compared, not fingerprints" default:"null"`
}

func (s ssh) rmKey(ctx context.Context, c *fn.Call, a rmKeyArgs) (string, error) {
	_, path, err := s.file(ctx, a.User, a.Config)
	if err != nil {
		return "Key not present", nil
	}
	switch found, err := sshkeys.Remove(s.m, path, a.Key); {
	case err != nil:
		c.Log.Error("cannot write SSH key file", "path", path, "err", err)
		return "Key not removed", nil
	case found:
		return "Key removed", nil
	}
	return "Key not present", nil
}

func (s ssh) rmFile(ctx context.Context, c *fn.Call, a keyFileArgs) (string, error) {
	keys, err := s.source(ctx, c, a.Source, a.Saltenv)
	if err != nil {
		return "", fn.Errorf("Failed to pull key file from salt file server")
	}
	if len(keys) == 0 {
		return "fail", nil
	}
	best := "Key not present"
	for _, k := range keys {
		done, err := s.rmKey(ctx, c, rmKeyArgs{User: a.User, Key: k.Key, Config: a.Config})
		if err != nil {
			return "", err
		}
		if done == "Key not removed" || best == "Key not present" {
			best = done
		}
	}
	return best, nil
}

type userKeysArgs struct {
	User any `salt:"user" doc:"user, or list of users; null for all" default:"null"`
	Pub  any `salt:"pubfile" doc:"name of the public key; false for none" default:"null"`
	Prv  any `salt:"prvfile" doc:"name of the private key; false for none" default:"null"`
}

func (s ssh) userKeys(ctx context.Context, _ *fn.Call, a userKeysArgs) (*value.Dict, error) {
	var names []string
	for _, f := range []struct {
		v      any
		suffix string
	}{{a.Pub, ".pub"}, {a.Prv, ""}} {
		switch {
		case value.Truth(f.v):
			names = append(names, value.Str(f.v))
		case f.v != false:
			for _, n := range []string{"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"} {
				names = append(names, n+f.suffix)
			}
		}
	}
	users, _ := s.users(ctx, a.User)
	out := value.NewDict(0)
	for _, user := range users {
		u, ok := account.ByName(ctx, s.m, user)
		if !ok {
			continue
		}
		d := value.NewDict(0)
		for _, n := range names {
			path := n
			if !filepath.IsAbs(n) {
				path = u.Home + "/.ssh/" + n
			}
			if s.m.IsFile(path) {
				d.Set(filepath.Base(n), strings.TrimSpace(s.m.Text(path)))
			}
		}
		if d.Len() > 0 {
			out.Set(user, d)
		}
	}
	return out, nil
}

type hostKeysArgs struct {
	Dir     any  `salt:"keydir" doc:"directory of the keys; null for /etc/ssh" default:"null"`
	Private bool `salt:"private" doc:"private keys too" default:"true"`
	Certs   bool `salt:"certs" doc:"certificates too" default:"true"`
}

func (s ssh) hostKeys(_ context.Context, _ *fn.Call, a hostKeysArgs) (*value.Dict, error) {
	dir := "/etc/ssh"
	if value.Truth(a.Dir) {
		dir = value.Str(a.Dir)
	}
	out := value.NewDict(0)
	for _, name := range s.m.List(dir) {
		rest, ok := strings.CutPrefix(name, "ssh_host_")
		i := strings.LastIndex(rest, "_key")
		if !ok || i <= 0 {
			continue
		}
		kind, suffix := rest[:i], rest[i+len("_key"):]
		public, cert := strings.HasSuffix(suffix, ".pub"), strings.HasPrefix(suffix, "-cert.pub")
		if !public {
			suffix = ""
		}
		if !public && !a.Private || cert && !a.Certs {
			continue
		}
		out.Set(kind+suffix, strings.TrimSpace(s.m.Text(filepath.Join(dir, name))))
	}
	return out, nil
}

// status returns errors of known hosts as results, as Salt does.
func status(word, key string, v any) *value.Dict { return value.DictOf("status", word, key, v) }

// knownFile returns the known hosts file of a user, or of the machine.
func (s ssh) knownFile(ctx context.Context, user, config string) (path string, u account.User, fault *value.Dict) {
	if user == "" {
		if config == "" {
			config = "/etc/ssh/ssh_known_hosts"
		}
		if !filepath.IsAbs(config) {
			return "", u, status("error", "error", "Cannot determine absolute path to file.")
		}
		return config, u, nil
	}
	if config == "" {
		config = ".ssh/known_hosts"
	}
	u, ok := account.ByName(ctx, s.m, user)
	if !ok && !filepath.IsAbs(config) {
		return "", u, status("error", "error", "User "+user+" does not exist")
	}
	if !filepath.IsAbs(config) {
		config = filepath.Join(u.Home, config)
	}
	return config, u, nil
}

type knownArgs struct {
	User     string `salt:"user" doc:"whose file; empty for that of the machine"`
	Hostname string `salt:"hostname" doc:"name of the host"`
	Config   string `salt:"config" doc:"the file" default:"null"`
	Port     int    `salt:"port" doc:"port of the host" default:"null"`
	Hash     any    `salt:"fingerprint_hash_type" doc:"hash of the fingerprints; null for sha256" default:"null"`
}

func shownHosts(hosts []sshkeys.Host, hash string) (any, error) {
	l := &value.List{}
	for _, h := range hosts {
		if print, err := sshkeys.Fingerprint(h.Key, hash); err == nil {
			l.Append(value.DictOf("hostname", h.Name, "key", h.Key, "enc", h.Type, "fingerprint", print))
		}
	}
	if l.Len() == 0 {
		return nil, nil
	}
	return l, nil
}

func (s ssh) known(ctx context.Context, _ *fn.Call, a knownArgs) (any, error) {
	path, _, fault := s.knownFile(ctx, a.User, a.Config)
	if fault != nil {
		return fault, nil
	}
	hosts, err := sshkeys.Known(s.m, path, sshkeys.HostName(a.Hostname, a.Port))
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return shownHosts(hosts, hashName(a.Hash))
}

type receiveArgs struct {
	Hostname string `salt:"hostname" doc:"name of the host"`
	Enc      string `salt:"enc" doc:"only keys of this type" default:"null"`
	Port     int    `salt:"port" doc:"port of the host" default:"null"`
	Hide     bool   `salt:"hash_known_hosts" doc:"hide the name" default:"true"`
	Timeout  int    `salt:"timeout" doc:"seconds to wait for the host" default:"5"`
	Hash     any    `salt:"fingerprint_hash_type" doc:"hash of the fingerprints; null for sha256" default:"null"`
}

func (s ssh) receive(ctx context.Context, _ *fn.Call, a receiveArgs) (any, error) {
	hosts, err := sshkeys.Scan(ctx, s.m, a.Hostname, a.Port, a.Enc, a.Hide, a.Timeout)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return shownHosts(hosts, hashName(a.Hash))
}

type checkHostArgs struct {
	User        string `salt:"user" doc:"whose file; empty for that of the machine" default:"null"`
	Hostname    string `salt:"hostname" doc:"name of the host" default:"null"`
	Key         string `salt:"key" doc:"the key in base64" default:"null"`
	Fingerprint string `salt:"fingerprint" doc:"fingerprint of the key" default:"null"`
	Config      string `salt:"config" doc:"the file" default:"null"`
	Port        int    `salt:"port" doc:"port of the host" default:"null"`
	Hash        any    `salt:"fingerprint_hash_type" doc:"hash of the fingerprints; null for sha256" default:"null"`
}

const noHost = "hostname argument required"

func (s ssh) checkHost(ctx context.Context, c *fn.Call, a checkHostArgs) (any, error) {
	if a.Hostname == "" {
		return status("error", "error", noHost), nil
	}
	v, err := s.known(ctx, c, knownArgs{a.User, a.Hostname, a.Config, a.Port, a.Hash})
	l, ok := v.(*value.List)
	if err != nil || v != nil && !ok {
		return v, err
	}
	if l.Len() == 0 {
		return "add", nil
	}
	for _, it := range l.Items {
		d := it.(*value.Dict)
		if a.Key != "" && d.Str("key") == a.Key || a.Key == "" && (a.Fingerprint == "" || d.Str("fingerprint") == a.Fingerprint) {
			return "exists", nil
		}
	}
	return "update", nil
}

type setHostArgs struct {
	User        string `salt:"user" doc:"whose file; empty for that of the machine" default:"null"`
	Hostname    string `salt:"hostname" doc:"name of the host" default:"null"`
	Fingerprint string `salt:"fingerprint" doc:"fingerprint that the key must have" default:"null"`
	Key         string `salt:"key" doc:"the key in base64; asked for if null" default:"null"`
	Port        int    `salt:"port" doc:"port of the host" default:"null"`
	Enc         string `salt:"enc" doc:"type of the key" default:"null"`
	Config      string `salt:"config" doc:"the file" default:"null"`
	Hide        bool   `salt:"hash_known_hosts" doc:"hide the name" default:"true"`
	Timeout     int    `salt:"timeout" doc:"seconds to wait for the host" default:"5"`
	Hash        any    `salt:"fingerprint_hash_type" doc:"hash of the fingerprints; null for sha256" default:"null"`
}

func (s ssh) setHost(ctx context.Context, c *fn.Call, a setHostArgs) (*value.Dict, error) {
	if a.Hostname == "" {
		return status("error", "error", noHost), nil
	}
	if a.Port != 0 && a.Port != 22 && a.Hide {
		return status("error", "error", "argument port can not be used in conjunction with argument hash_known_hosts"), nil
	}
	path, u, fault := s.knownFile(ctx, a.User, a.Config)
	if fault != nil {
		return fault, nil
	}
	name := sshkeys.HostName(a.Hostname, a.Port)
	old, err := sshkeys.Known(s.m, path, name)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	if (a.Key != "" || a.Fingerprint != "") && trusted(old, a) {
		return status("exists", "keys", keysOf(old, a.Enc)), nil
	}
	fresh, text, err := s.fresh(ctx, a)
	if err != nil || text != "" {
		return status("error", "error", text), err
	}
	if a.Key == "" && a.Fingerprint == "" && len(old) > 0 && sameKeys(old, fresh) {
		return status("exists", "keys", keysOf(old, a.Enc)), nil
	}
	lines := slices.Clone(fresh)
	for i := range lines {
		if lines[i].Name = name; a.Hide {
			lines[i].Name = sshkeys.Hash(name)
		}
	}
	if err := s.learn(u, path, name, lines, a.Enc == ""); err != nil {
		return nil, fn.Errorf("Couldn't append to known hosts file: %w", err)
	}
	before, _ := shownHosts(old, hashName(a.Hash))
	after, _ := shownHosts(fresh, hashName(a.Hash))
	if a.Key != "" { // shown as given, even if it is not a valid key
		entry := value.DictOf("hostname", a.Hostname, "enc", a.Enc, "key", a.Key)
		if !a.Hide && a.Port != 0 && a.Port != 22 {
			entry.Set("port", int64(a.Port))
		}
		after = value.ListOf(entry)
	}
	return value.DictOf("status", "updated", "old", before, "new", after), nil
}

// learn writes the file. A new file belongs to its user. So does a new
// directory, which is accessible to the user only.
func (s ssh) learn(u account.User, path, name string, lines []sshkeys.Host, all bool) error {
	dir := filepath.Dir(path)
	isNew, newDir := !s.m.Exists(path), !s.m.Exists(dir)
	if err := sshkeys.Learn(s.m, path, name, lines, all); err != nil || !isNew {
		return err
	}
	err := s.m.Chmod(path, 0o600)
	if u.Name == "" {
		return err
	}
	if newDir {
		err = errors.Join(err, s.m.Chmod(dir, 0o700))
	}
	if os.Geteuid() == 0 {
		err = errors.Join(err, os.Lchown(s.m.Path(path), u.UID, u.GID))
		if newDir {
			err = errors.Join(err, os.Lchown(s.m.Path(dir), u.UID, u.GID))
		}
	}
	return err
}

// trusted reports whether the file already has the key in the arguments.
func trusted(old []sshkeys.Host, a setHostArgs) bool {
	return slices.ContainsFunc(old, func(h sshkeys.Host) bool {
		if a.Enc != "" && h.Type != a.Enc {
			return false
		}
		print, err := sshkeys.Fingerprint(h.Key, hashName(a.Hash))
		return (a.Key == "" || h.Key == a.Key) && (a.Fingerprint == "" || err == nil && print == a.Fingerprint)
	})
}

func keysOf(hosts []sshkeys.Host, enc string) *value.List {
	l := &value.List{}
	for _, h := range hosts {
		if enc == "" || h.Type == enc {
			l.Append(h.Key)
		}
	}
	return l
}

func sameKeys(a, b []sshkeys.Host) bool {
	key := func(hosts []sshkeys.Host) []string {
		var out []string
		for _, h := range hosts {
			out = append(out, h.Key)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	return slices.Equal(key(a), key(b))
}

// fresh returns the given key, or those that the host sends. text says why
// they are unusable.
func (s ssh) fresh(ctx context.Context, a setHostArgs) (hosts []sshkeys.Host, text string, err error) {
	if a.Key != "" {
		enc := a.Enc
		if enc == "" {
			return nil, "", fn.Invalidf("a key needs its type: give enc")
		}
		return []sshkeys.Host{{Name: a.Hostname, Type: enc, Key: a.Key}}, "", nil
	}
	hosts, err = sshkeys.Scan(ctx, s.m, a.Hostname, a.Port, a.Enc, false, a.Timeout)
	if err != nil {
		return nil, "", fn.Errorf("%w", err)
	}
	if len(hosts) == 0 {
		return nil, "Unable to receive remote host keys", nil
	}
	fits := func(h sshkeys.Host) bool {
		print, err := sshkeys.Fingerprint(h.Key, hashName(a.Hash))
		return err == nil && print == a.Fingerprint
	}
	if a.Fingerprint != "" && !slices.ContainsFunc(hosts, fits) {
		return nil, "Remote host public keys found but none of their fingerprints match the one you have provided", nil
	}
	return hosts, "", nil
}

type rmHostArgs struct {
	User     string `salt:"user" doc:"whose file; empty for that of the machine" default:"null"`
	Hostname string `salt:"hostname" doc:"name of the host" default:"null"`
	Config   string `salt:"config" doc:"the file" default:"null"`
	Port     int    `salt:"port" doc:"port of the host" default:"null"`
}

func (s ssh) rmHost(ctx context.Context, _ *fn.Call, a rmHostArgs) (*value.Dict, error) {
	if a.Hostname == "" {
		return status("error", "error", noHost), nil
	}
	path, _, fault := s.knownFile(ctx, a.User, a.Config)
	if fault != nil {
		return fault, nil
	}
	if !s.m.IsFile(path) {
		return status("error", "error", "Known hosts file "+path+" does not exist"), nil
	}
	name := sshkeys.HostName(a.Hostname, a.Port)
	old, err := sshkeys.Known(s.m, path, name)
	if err == nil && len(old) > 0 {
		err = sshkeys.Learn(s.m, path, name, nil, true)
	}
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	if len(old) == 0 {
		return status("removed", "comment", "Host "+name+" not found in "+path), nil
	}
	return status("removed", "comment", path+" updated."), nil
}

type hashArgs struct {
	User   string `salt:"user" doc:"whose file; empty for that of the machine" default:"null"`
	Config string `salt:"config" doc:"the file" default:"null"`
}

func (s ssh) hash(ctx context.Context, _ *fn.Call, a hashArgs) (*value.Dict, error) {
	path, _, fault := s.knownFile(ctx, a.User, a.Config)
	if fault != nil {
		return fault, nil
	}
	if !s.m.IsFile(path) {
		return status("error", "error", "Known hosts file "+path+" does not exist"), nil
	}
	if err := sshkeys.HashAll(s.m, path); err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return status("updated", "comment", path+" updated."), nil
}
