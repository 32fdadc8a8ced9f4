package pillar

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/net/remote"
	"brine/internal/py/value"
)

// checks return the error that a source has for every minion, without asking a server and without
// running a program. A source without one is checked when a minion needs it.
var checks = map[string]func(c *Config, a args) error{
	"cmd_json":                    takes(cmdArgs, "command"),
	"cmd_yaml":                    takes(cmdArgs, "command"),
	"cmd_yamlex":                  takes(cmdArgs, "command"),
	"extra_minion_data_in_pillar": takes(extraArgs, "include"),
	"file_tree":                   checkFileTree,
	"http_json":                   takes(httpJSONArgs, "url"),
	"http_yaml":                   takes(httpArgs, "url"),
	"mysql":                       checkDatabase(openMySQL),
	"nodegroups":                  takes(nodegroupArgs, ""),
	"postgres":                    checkDatabase(openPostgres),
	"sqlite3":                     checkSQLite,
	"stack":                       checkStack,
}

// Check returns the errors in the option ext_pillar with which the pillar of every minion fails. Those
// of git repositories are returned by gitpillar.Source.
func Check(p *Compiler) (faults []error) {
	if p == nil {
		return nil
	}
	l, ok := p.o.External.(*value.List)
	if !ok && value.Truth(p.o.External) {
		return []error{salt.Errorf(salt.Invalid, "ext_pillar: expected a list of maps, got %s", value.TypeName(p.o.External))}
	}
	if l == nil {
		return nil
	}
	for _, it := range l.Items {
		d, ok := it.(*value.Dict)
		if !ok || d.Len() == 0 {
			faults = append(faults, salt.Errorf(salt.Invalid, "ext_pillar: expected a list of maps, got %s in it", value.TypeName(it)))
			continue
		}
		for k, v := range d.All() {
			name := value.Str(k)
			check := checks[name]
			if check == nil || p.c.Python != nil && p.c.Python.Has(name) {
				continue
			}
			if err := check(&p.c, readArgs(v)); err != nil {
				faults = append(faults, fmt.Errorf("ext_pillar: %s: %w", name, err))
			}
		}
	}
	return faults
}

// LogMisconfigured logs the errors of Check.
func LogMisconfigured(p *Compiler, log *slog.Logger) {
	for _, err := range Check(p) {
		log.Error("a source of ext_pillar is misconfigured; pillars fail", "err", err)
	}
}

// LogGit logs an error of the repositories of ext_pillar.
func LogGit(err error, log *slog.Logger) {
	log.Error("ext_pillar: git is misconfigured; pillars that need it fail", "err", err)
}

// takes returns a check of the names of arguments, of which one must be a string unless it is "".
func takes(names []string, needed string) func(*Config, args) error {
	return func(_ *Config, a args) error {
		in, err := a.bind(names...)
		if err != nil || needed == "" {
			return err
		}
		if s, ok := in[needed].(string); !ok || s == "" {
			return salt.Errorf(salt.Invalid, "%s must be a string, not %s", needed, value.TypeName(in[needed]))
		}
		return nil
	}
}

func checkFileTree(_ *Config, a args) error {
	in, err := a.bind(fileTreeArgs...)
	if err != nil {
		return err
	}
	dir := textOr(in["root_dir"], "")
	if strings.ContainsAny(dir, "%") { // the environment is a part of the name
		return nil
	}
	fi, err := os.Stat(dir)
	switch {
	case err != nil:
		return salt.Errorf(salt.Invalid, "root_dir: %w", err)
	case !fi.IsDir():
		return salt.Errorf(salt.Invalid, "root_dir: %w", &fs.PathError{Op: "open", Path: dir, Err: fs.ErrInvalid})
	}
	return nil
}

// checkDatabase returns a check of the options of a database and of the queries. It does not connect.
func checkDatabase(open func(c *Config) (*remote.SQL, error)) func(*Config, args) error {
	return func(c *Config, a args) error {
		db, err := open(c)
		if err != nil {
			return err
		}
		defer db.Close()
		_, err = readQueries(a)
		return err
	}
}

func checkSQLite(c *Config, a args) error {
	if path, _ := sqliteFile(c); !filepath.IsAbs(path) {
		return notAbsolute(path)
	}
	_, err := readQueries(a)
	return err
}

// checkStack checks where the keys of a map of stack files lead to.
func checkStack(_ *Config, a args) error {
	for k := range a.named.All() {
		where, _, _ := strings.Cut(value.Str(k), ":")
		if where != "pillar" && where != "grains" && where != "opts" {
			return unknownTraverse(where)
		}
	}
	return nil
}
