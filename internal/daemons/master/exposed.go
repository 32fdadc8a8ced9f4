package master

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// exposure is a file or directory of a master that is wrongly accessible to
// other users of this machine.
type exposure struct {
	path string
	mode fs.FileMode
	// refusal is the reason why the master does not start; "" if fixing the mode
	// suffices. It does not if others could write: the contents may be forged.
	refusal string
	mend    fs.FileMode // the repaired mode
	// empty means that the contents of the directory are removed as well: others
	// may have read or forged them, and the master can create them again.
	empty bool
}

// String describes the problem and what to do.
func (e exposure) String() string {
	if e.refusal != "" {
		return e.refusal
	}
	s := fmt.Sprintf("other users can reach %s (mode %04o), which the master changes to %04o when it starts", e.path, e.mode, e.mend)
	if e.empty {
		s += ", and removes what is in it"
	}
	return s
}

// others are the permissions of users who are neither owner nor group.
const (
	others      fs.FileMode = 0o007
	othersWrite fs.FileMode = 0o002
)

// keyDirs are the directories of pki_dir whose files record decisions about keys.
var keyDirs = []string{"", "minions", "minions_pre", "minions_rejected", "minions_denied", "minions_autosign"}

// exposures searches for files that other users of this machine can read or
// write. Missing paths are not exposed.
func exposures(cfg *Config) (out []exposure) {
	for _, name := range keyDirs {
		path := filepath.Join(cfg.PKIDir, name)
		if mode, ok := directory(path); ok && mode&othersWrite != 0 {
			out = append(out, exposure{path: path, mode: mode, refusal: writable(path, mode, "keys of minions")})
		}
	}
	out = append(out, exposedCache(cfg)...)
	return append(out, exposedLocalKeys(cfg)...)
}

func exposedCache(cfg *Config) (out []exposure) {
	mode, ok := directory(cfg.CacheDir)
	if !ok {
		return nil
	}
	if mode&othersWrite != 0 {
		return append(out, exposure{path: cfg.CacheDir, mode: mode, refusal: writable(cfg.CacheDir, mode, "the keys of the command line")})
	}
	if mend := mode & closedCache(cfg); mend != mode {
		out = append(out, exposure{path: cfg.CacheDir, mode: mode, mend: mend})
	}
	entries, err := os.ReadDir(cfg.CacheDir)
	if err != nil {
		return out
	}
	for _, e := range entries {
		path := filepath.Join(cfg.CacheDir, e.Name())
		mode, ok := directory(path)
		if !ok || mode&others == 0 || e.Type()&fs.ModeSymlink != 0 {
			continue
		}
		// Remove session keys that others may know and tokens that others may have
		// written.
		empty := e.Name() == "sessions" && readable(path) || e.Name() == "tokens" && mode&othersWrite != 0
		out = append(out, exposure{path: path, mode: mode, mend: mode &^ others, empty: empty})
	}
	return out
}

// readable reports whether others can read some file in a directory that they can
// enter. Stock masters keep private files in such directories.
func readable(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return true
	}
	for _, e := range entries {
		if st, err := e.Info(); err != nil || st.Mode().Perm()&others != 0 {
			return true
		}
	}
	return false
}

// closedCache returns the mask for the mode of cachedir. Users of publisher_acl
// must be able to open their own key in it.
func closedCache(cfg *Config) fs.FileMode {
	if grants, ok := cfg.Options.PublisherACL.(*value.Dict); ok && grants.Len() > 0 {
		return fs.ModePerm &^ 0o006
	}
	return fs.ModePerm &^ others
}

// exposedLocalKeys checks the keys with which users of this machine authenticate
// to the master. A user who controls root's key controls all minions.
func exposedLocalKeys(cfg *Config) (out []exposure) {
	paths, err := filepath.Glob(filepath.Join(cfg.CacheDir, ".*_key"))
	if err != nil {
		return nil
	}
	for _, path := range paths {
		st, err := os.Lstat(path)
		if err != nil {
			continue
		}
		mode := st.Mode().Perm()
		owner, _ := st.Sys().(*syscall.Stat_t)
		privileged := strings.HasSuffix(path, "/.root_key")
		switch {
		case !st.Mode().IsRegular():
			out = append(out, exposure{path: path, mode: mode,
				refusal: fmt.Sprintf("the key of the command line %s is no regular file: run rm %[1]s; the master makes a new one", path)})
		case privileged && owner != nil && int(owner.Uid) != os.Geteuid() && owner.Uid != 0:
			out = append(out, exposure{path: path, mode: mode,
				refusal: fmt.Sprintf("the key of the command line %s belongs to another user (uid %d): run rm %[1]s; the master makes a new one", path,
					owner.Uid)})
		case mode&(others|0o070) != 0:
			out = append(out, exposure{path: path, mode: mode, refusal: fmt.Sprintf(
				"other users can read or write the key of the command line %s (mode %04o), and may command the fleet with it: run rm %[1]s; the "+
					"master makes a new one", path, mode)})
		}
	}
	return out
}

func writable(path string, mode fs.FileMode, what string) string {
	return fmt.Sprintf("everybody can write to %s (mode %04o), so that anybody may have put %s there: check what is in it, then run chmod o-w on it", path,
		mode, what)
}

func directory(path string) (mode fs.FileMode, ok bool) {
	st, err := os.Stat(path)
	if err != nil || !st.IsDir() {
		return 0, false
	}
	return st.Mode().Perm(), true
}

// closeToOthers fixes modes that give other users of this machine access, and logs
// a warning for each. It returns an error of kind salt.Denied if the operator must
// decide.
func closeToOthers(cfg *Config, log *slog.Logger) error {
	admitUsers(cfg, log)
	for _, e := range exposures(cfg) {
		if e.refusal != "" {
			return salt.Errorf(salt.Denied, "%s", e.refusal)
		}
		if err := os.Chmod(e.path, e.mend); err != nil {
			// On a network file system that maps the owner, chmod may fail: only log it.
			log.Warn("directory of the master is accessible to other users, and its mode cannot be changed", "path", e.path, "mode", fmt.Sprintf("%04o", e.mode),
				"err", err)
			continue
		}
		level := slog.LevelWarn
		if entries, err := os.ReadDir(e.path); err == nil && len(entries) == 0 {
			level = slog.LevelDebug // new: its contents were never accessible
		}
		log.Log(context.Background(), level, "directory of the master was accessible to other users; changed its mode", "path", e.path, "mode",
			fmt.Sprintf("%04o", e.mode), "changed_to", fmt.Sprintf("%04o", e.mend))
		if e.empty {
			if err := removeFiles(e.path); err != nil {
				return salt.Errorf(salt.Denied, "cannot remove the secrets that others could reach: %w", err)
			}
		}
	}
	return nil
}

// admitUsers lets users of publisher_acl open their own key in a cachedir that
// was created before they were configured.
func admitUsers(cfg *Config, log *slog.Logger) {
	const enter fs.FileMode = 0o001
	mode, ok := directory(cfg.CacheDir)
	if !ok || mode&enter != 0 || closedCache(cfg)&enter == 0 {
		return
	}
	if err := os.Chmod(cfg.CacheDir, mode|enter); err != nil {
		log.Warn("users of publisher_acl cannot reach their keys: cannot change the mode of cachedir; run chmod o+x on it", "path", cfg.CacheDir, "err",
			err)
		return
	}
	log.Info("allowing users of publisher_acl to enter cachedir, to read their own key", "path", cfg.CacheDir)
}

func removeFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// CheckExposed returns what New would refuse and what it would fix. It changes
// nothing.
func CheckExposed(cfg *Config) (refused, repaired []string) {
	for _, e := range exposures(cfg) {
		if e.refusal != "" {
			refused = append(refused, e.refusal)
		} else {
			repaired = append(repaired, e.String())
		}
	}
	return refused, repaired
}
