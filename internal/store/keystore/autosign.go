package keystore

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/base/target"
	"brine/internal/host"
	"brine/internal/py/value"
)

// Options select the new minions whose keys need no decision by the operator.
type Options struct {
	AutoAccept          bool   `salt:"auto_accept"           default:"false" doc:"accept the key of every new minion; anyone who reaches the master becomes a minion"`
	AutosignFile        string `salt:"autosign_file"         default:""      doc:"file of ids to accept: a name, glob or regular expression per line"`
	AutorejectFile      string `salt:"autoreject_file"       default:""      doc:"file of ids to reject: a glob or regular expression per line"`
	AutosignTimeout     int    `salt:"autosign_timeout"      default:"120"   doc:"minutes for which a file PKI_DIR/minions_autosign/ID is valid; 0: without limit"`
	AutosignGrainsDir   string `salt:"autosign_grains_dir"   default:""      doc:"directory with a file for each grain that lists the values to accept"`
	PermissivePKIAccess bool   `salt:"permissive_pki_access" default:"false" doc:"use autosign files that the group may write"`
}

// maxSigningFile bounds a file of ids or grain values in bytes.
const maxSigningFile = 16 << 20

// Autosign decides about the keys of new minions by means of the files that the options name. It is
// safe for concurrent use.
type Autosign struct {
	o    Options
	stub string
	user string
	log  *slog.Logger

	mu    sync.Mutex
	files map[string]signingFile
}

type signingFile struct {
	stamp host.Stamp
	ids   []idPattern
}

// idPattern is a line of a signing file. It matches an id as a glob or as a regular expression for the
// whole id. A plain name or glob is not also tried as a regular expression; see plainGlob.
type idPattern struct {
	glob  target.Glob
	re    *regexp.Regexp // nil if it is not a valid one
	plain bool
}

// NewAutosign returns an Autosign for the keys in s. user is the user that the master runs as
// (option user).
func NewAutosign(s *Store, o Options, user string, log *slog.Logger) *Autosign {
	return &Autosign{o: o, stub: filepath.Join(s.dir, autosignDir), user: user, log: log, files: map[string]signingFile{}}
}

// CheckFiles returns errors about the files and the directory of o that would be ignored: missing
// are those that may appear later. user is as in NewAutosign.
func CheckFiles(o Options, user string) (missing, unusable []error) {
	a := &Autosign{o: o, user: user}
	for _, f := range []struct{ option, path string }{{"autosign_file", o.AutosignFile}, {"autoreject_file", o.AutorejectFile}} {
		if f.path == "" {
			continue
		}
		_, err := readSigningFile(f.path)
		if err == nil {
			err = a.checkMode(f.path)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, salt.Errorf(salt.NotFound, "%s: there is no file %s; it has no effect until there is one", f.option, f.path))
		case errors.Is(err, errNotFile):
			unusable = append(unusable, salt.Errorf(salt.Invalid, "%s: %s is not a file", f.option, f.path))
		case err != nil:
			unusable = append(unusable, salt.Errorf(salt.Invalid, "%s: %s: %w", f.option, f.path, err))
		}
	}
	if dir := o.AutosignGrainsDir; dir != "" {
		_, err := os.ReadDir(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, salt.Errorf(salt.NotFound, "autosign_grains_dir: there is no directory %s; it has no effect until there is one", dir))
		case err != nil:
			unusable = append(unusable, salt.Errorf(salt.Invalid, "autosign_grains_dir: %w", err))
		}
	}
	return missing, unusable
}

// Rejects reports whether the key of a new minion is to be rejected. Call it before Signs.
func (a *Autosign) Rejects(id string) bool { return a.inFile(a.o.AutorejectFile, id) }

// Signs returns the rule by which the key of a new or pending minion is to be accepted, "" for
// none. grains are those sent at sign-in, or nil. A stub file for the id is consumed, so call it
// only when the answer is acted upon.
func (a *Autosign) Signs(id string, grains *value.Dict) (rule string) {
	switch {
	case checkID(id) != nil:
		return ""
	case a.o.AutoAccept:
		return "auto_accept"
	case a.inFile(a.o.AutosignFile, id):
		return "autosign_file"
	case a.useStub(id):
		return autosignDir
	case a.grainListed(grains):
		return "autosign_grains_dir"
	}
	return ""
}

// inFile reports whether a signing file names the id. In a file that accepts, a
// plain name or glob is not tried as a regular expression: it would accept too
// many ids.
func (a *Autosign) inFile(path, id string) bool {
	if path == "" {
		return false
	}
	now, err := host.StampOf(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err == nil {
		err = a.checkMode(path)
	}
	if err != nil {
		a.log.Warn("ignoring file of minion ids", "path", path, "err", err)
		return false
	}
	a.mu.Lock()
	f, ok := a.files[path]
	a.mu.Unlock()
	if !ok || f.stamp != now {
		if f, err = readSigningFile(path); err != nil {
			a.log.Warn("cannot read a file of minion ids", "path", path, "err", err)
			return false
		}
		a.mu.Lock()
		if f.stamp.Settled() {
			a.files[path] = f
		} else {
			delete(a.files, path)
		}
		a.mu.Unlock()
	}
	return slices.ContainsFunc(f.ids, func(p idPattern) bool {
		return p.glob.Match(id) || p.re != nil && (!p.plain || path != a.o.AutosignFile) && p.re.MatchString(id)
	})
}

// plainGlob reports whether a line is a name or a glob rather than a regular expression. Salt also
// reads each line as a regular expression, so that web*.example.com matches we-example-com. A line
// counts as a regular expression if it has a character that ids and globs do not have, a quantifier
// after a dot or a character class, or a dot where no name has one.
func plainGlob(line string) bool {
	if strings.ContainsAny(line, `\^$|(){}+`) {
		return false
	}
	before := byte('.')
	for i := range len(line) {
		switch c := line[i]; {
		case c == '.' && (before == '.' || i == len(line)-1),
			(c == '*' || c == '?') && (before == ']' || before == '.' && i > 0):
			return false
		}
		before = line[i]
	}
	return true
}

func readSigningFile(path string) (signingFile, error) {
	b, st, err := readFile(path, maxSigningFile)
	f := signingFile{stamp: st}
	for line := range usedLines(b) {
		p := idPattern{glob: target.ParseGlob(line), plain: plainGlob(line)}
		if re, err := target.CompileFullRegexp(line); err == nil {
			p.re = re
		}
		f.ids = append(f.ids, p)
	}
	return f, err
}

// usedLines yields the lines that are neither blank nor comments, trimmed.
func usedLines(b []byte) func(func(string) bool) {
	return func(yield func(string) bool) {
		sc := bufio.NewScanner(bytes.NewReader(b))
		sc.Buffer(nil, maxSigningFile+1)
		for sc.Scan() {
			line := strings.TrimSpace(sc.Text())
			if line != "" && line[0] != '#' && !yield(line) {
				return
			}
		}
	}
}

// checkMode refuses a file that users other than the master's user may write, since they could
// accept keys.
func (a *Autosign) checkMode(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	mode := info.Mode().Perm()
	switch {
	case mode&0o002 != 0:
		return salt.Errorf(salt.Denied, "it is writable for all users; run chmod o-w")
	case mode&0o020 == 0:
		return nil
	case !a.o.PermissivePKIAccess:
		return salt.Errorf(salt.Denied, "it is writable for its group; run chmod g-w or set permissive_pki_access")
	case os.Geteuid() == 0 && !a.inGroup(info):
		return salt.Errorf(salt.Denied, "it is writable for its group, and user %s is not in that group", a.user)
	}
	return nil
}

// inGroup reports whether the master's user is a member of the file's group.
func (a *Autosign) inGroup(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	u, err := user.Lookup(a.user)
	if err != nil {
		return false
	}
	groups, err := u.GroupIds()
	return err == nil && slices.Contains(groups, strconv.FormatUint(uint64(st.Gid), 10))
}

// useStub removes the stub of an id, and reports whether it existed and had not expired. Of several
// concurrent callers one succeeds.
func (a *Autosign) useStub(id string) bool {
	a.dropExpired()
	path := filepath.Join(a.stub, id)
	info, err := os.Lstat(path)
	if err != nil || info.IsDir() || a.o.AutosignTimeout > 0 && info.ModTime().Before(a.oldest(time.Now())) {
		return false
	}
	if err := os.Remove(path); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			a.log.Warn("ignoring autosign stub: cannot remove it", "path", path, "err", err)
		}
		return false
	}
	return true
}

// oldest is the time before which a stub was made if it has expired at a time.
func (a *Autosign) oldest(at time.Time) time.Time {
	return at.Add(-time.Duration(a.o.AutosignTimeout) * time.Minute)
}

func (a *Autosign) dropExpired() {
	if a.o.AutosignTimeout <= 0 {
		return
	}
	entries, err := os.ReadDir(a.stub)
	if err != nil {
		return
	}
	oldest := a.oldest(steady.Removal())
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.IsDir() || !info.ModTime().Before(oldest) {
			continue
		}
		path := filepath.Join(a.stub, e.Name())
		if err := os.Remove(path); err == nil {
			a.log.Warn("autosign stub expired", "path", path)
		}
	}
}

// grainListed reports whether a grain's file lists the value of that grain. The names of grains come from an
// unauthenticated peer, so only names found in the directory are opened.
func (a *Autosign) grainListed(grains *value.Dict) bool {
	if a.o.AutosignGrainsDir == "" || grains.Len() == 0 {
		return false
	}
	entries, err := os.ReadDir(a.o.AutosignGrainsDir)
	if err != nil {
		a.log.Warn("cannot read the directory autosign_grains_dir", "path", a.o.AutosignGrainsDir, "err", err)
		return false
	}
	for _, e := range entries {
		v, ok := grains.Get(e.Name())
		if !ok {
			continue
		}
		path := filepath.Join(a.o.AutosignGrainsDir, e.Name())
		if err := a.checkMode(path); err != nil {
			a.log.Warn("ignoring file of grain values", "path", path, "err", err)
			continue
		}
		b, _, err := readFile(path, maxSigningFile)
		if err != nil && !errors.Is(err, errNotFile) {
			a.log.Warn("cannot read a file of grain values", "path", path, "err", err)
			continue
		}
		want := value.Str(v)
		for line := range usedLines(b) {
			if line == want {
				return true
			}
		}
	}
	return false
}
