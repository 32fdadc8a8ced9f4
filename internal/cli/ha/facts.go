package ha

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/cli/frame"
	"brine/internal/daemons/config"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// facts is the known data of one master: values by section and item. A section that could not be
// read is absent, and not compared.
type facts struct {
	Master   string                       `json:"master"`
	From     string                       `json:"from"` // directory, report or address
	Sections map[string]map[string]string `json:"sections"`
	Notes    []string                     `json:"notes,omitempty"` // what could not be read
}

// The sections.
const (
	secKey      = "master key"
	secSigning  = "signing key"
	secAccepted = "accepted minions"
	secRefused  = "rejected minions"
	secFiles    = "file_roots"
	secPillar   = "pillar_roots"
	secAccess   = "access"
	secOptions  = "options"
	secVersion  = "version"
	secClock    = "clock"
	secMinion   = "this minion"
)

func newFacts(master, from string) *facts {
	return &facts{Master: master, From: from, Sections: map[string]map[string]string{}}
}

func (f *facts) set(section, item, v string) {
	if f.Sections[section] == nil {
		f.Sections[section] = map[string]string{}
	}
	f.Sections[section][item] = v
}

// has marks a section as read, even if it is empty.
func (f *facts) has(section string) {
	if f.Sections[section] == nil {
		f.Sections[section] = map[string]string{}
	}
}

func (f *facts) note(format string, args ...any) {
	f.Notes = append(f.Notes, fmt.Sprintf(format, args...))
}

// own are options that may differ between masters.
var own = map[string]bool{
	"id": true, "interface": true, "ipv6": true, "root_dir": true, "conf_file": true, "config_dir": true, "pki_dir": true, "cachedir": true,
	"sock_dir": true, "log_dir": true, "log_file": true, "key_logfile": true, "pidfile": true, "extension_modules": true, "master_id": true,
	"token_dir": true, "syndic_dir": true, "sqlite_queue_dir": true, "user": true, "file_roots": true, "pillar_roots": true, "default_include": true,
	"include": true, "autosign_file": true, "autoreject_file": true, "key_pass": true, "signing_key_pass": true, "minion_id_caching": true,
}

// access are the options about permissions.
var access = map[string]bool{
	"publisher_acl": true, "publisher_acl_blacklist": true, "external_auth": true, "peer": true, "peer_run": true, "client_acl_verify": true,
	"sudo_acl": true, "open_mode": true, "auto_accept": true, "autosign_grains_dir": true, "allow_minion_key_revoke": true, "token_expire": true,
	"rest_cherrypy": true, "minionfs_whitelist": true, "ssh_minion_opts": true,
}

// ofDirectory collects the facts of the master configured in a directory or file. usual is the default
// configuration directory of a master here.
func ofDirectory(ctx context.Context, path, usual string) (*facts, error) {
	file := path
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		file = filepath.Join(path, "master")
	}
	if _, err := os.Stat(file); err != nil && !onlyDefaults(file, usual) {
		return nil, fmt.Errorf("%s contains no master configuration: %w", path, err)
	}
	quiet := slog.New(slog.DiscardHandler)
	tree, err := config.Load(file, config.MasterKind, quiet)
	if err != nil {
		return nil, err
	}
	machine := config.ThisMachine()
	machine.FullName = func(name string) string { return name }
	conf, err := config.NewMaster(tree, machine, quiet)
	if err != nil {
		return nil, err
	}
	opts, err := config.Dump(tree, conf)
	if err != nil {
		return nil, err
	}
	f := newFacts(conf.Files.ID, path)
	f.options(opts)
	f.keys(conf)
	f.minions(conf)
	f.tree(ctx, secFiles, opts.At("file_roots"))
	f.tree(ctx, secPillar, opts.At("pillar_roots"))
	f.set(secVersion, "brine", frame.Version)
	return f, nil
}

func (f *facts) options(opts *value.Dict) {
	for k, v := range opts.All() {
		name := value.Str(k)
		switch {
		case own[name]:
		case access[name]:
			f.set(secAccess, name, value.Repr(sorted(v)))
		case secret(name) && value.Truth(v):
			f.set(secOptions, name, "(hidden) "+hashValue(value.DictOf("v", v)))
		default:
			f.set(secOptions, name, value.Repr(sorted(v)))
		}
	}
}

// secret reports whether the value of an option must not be shown.
func secret(name string) bool {
	for _, w := range []string{"pass", "secret", "token", "credential"} {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}

func (f *facts) keys(conf *config.Master) {
	o, dir, hash := &conf.Options, conf.Files.PKIDir, conf.Options.HashType
	pub, err := os.ReadFile(filepath.Join(dir, "master.pub"))
	switch {
	case err == nil:
		f.set(secKey, "fingerprint", crypt.Fingerprint(pub, hash))
	case errors.Is(err, fs.ErrNotExist):
		f.set(secKey, "fingerprint", "none: the master has not been started yet")
	default:
		f.note("cannot read the master's key: %v", err)
	}
	f.set(secSigning, "used", fmt.Sprint(o.MasterSignPubkey))
	if !o.MasterSignPubkey {
		return
	}
	pub, err = os.ReadFile(filepath.Join(dir, o.MasterSignKeyName+".pub"))
	if err != nil {
		f.set(secSigning, "fingerprint", "none")
		return
	}
	f.set(secSigning, "fingerprint", crypt.Fingerprint(pub, hash))
}

// minions collects the keys of minions.
func (f *facts) minions(conf *config.Master) {
	for _, s := range []struct {
		section string
		state   keystore.State
	}{{secAccepted, keystore.Accepted}, {secRefused, keystore.Rejected}} {
		dir := filepath.Join(conf.Files.PKIDir, s.state.DirName())
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.note("cannot read the %s: %v", s.section, err)
			continue
		}
		f.has(s.section)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				continue
			}
			if pub, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil {
				f.set(s.section, e.Name(), crypt.Fingerprint(pub, conf.Options.HashType))
			}
		}
	}
}

// maxFiles bounds the compared files.
const maxFiles = 200_000

// tree collects the hashes of file_roots or pillar_roots. If several directories have a file with
// the same name, the first one counts.
func (f *facts) tree(ctx context.Context, section string, roots any) {
	envs, ok := roots.(*value.Dict)
	if !ok {
		return
	}
	f.has(section)
	n := 0
	for env, dirs := range envs.All() {
		l, _ := dirs.(*value.List)
		for i := range l.Len() {
			root := value.Str(l.Items[i])
			err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					if path == root && errors.Is(err, fs.ErrNotExist) {
						return nil
					}
					return errors.Join(err, ctx.Err())
				}
				rel, err := filepath.Rel(root, path)
				if err != nil {
					return err
				}
				item := value.Str(env) + ": " + rel
				if _, there := f.Sections[section][item]; there {
					return nil
				}
				if n++; n > maxFiles {
					return fmt.Errorf("there are more than %d files", maxFiles)
				}
				sum, err := hashFile(path)
				if err == nil {
					f.set(section, item, sum)
				}
				return err
			})
			if err != nil {
				f.note("%s is compared only in part: %v", section, err)
				return
			}
		}
	}
}

// hashFile returns a short hash of a file's content, or a constant for a broken link.
func hashFile(path string) (string, error) {
	in, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "a broken link", nil
	}
	if err != nil {
		return "", err
	}
	defer in.Close()
	if st, err := in.Stat(); err != nil || !st.Mode().IsRegular() {
		return "no file", err
	}
	h := sha256.New()
	if _, err := io.Copy(h, in); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// onlyDefaults reports whether a master may run without this main file: it is the default one,
// where all options have defaults, or included files exist. Otherwise the directory is probably
// wrong.
func onlyDefaults(file, usual string) bool {
	if st, err := os.Stat(filepath.Join(filepath.Dir(file), "master.d")); err == nil && st.IsDir() {
		return true
	}
	st, err := os.Stat(filepath.Dir(file))
	return err == nil && st.IsDir() && filepath.Clean(filepath.Dir(file)) == filepath.Clean(usual)
}
