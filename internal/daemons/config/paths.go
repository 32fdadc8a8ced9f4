package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"brine/internal/py/value"
)

// pathOptions are the options that root_dir applies to.
var pathOptions = []string{
	"autoreject_file", "autosign_file", "autosign_grains_dir", "cachedir", "extension_modules", "key_logfile",
	"log_file", "pidfile", "pki_dir", "sock_dir", "sqlite_queue_dir", "ssh_log_file", "syndic_dir", "token_dir",
}

func isPath(name string) bool { return slices.Contains(pathOptions, name) }

var uri = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

// underRoot puts path below root as Salt does: also an absolute path, unless it
// is below root already; but not a URI such as udp://host, which logs may use.
func underRoot(root, path string) string {
	if path == "" || uri.MatchString(path) {
		return path
	}
	root, err := filepath.Abs(root)
	if err != nil || root == "/" && filepath.IsAbs(path) {
		return path
	}
	if rest, ok := strings.CutPrefix(path, root+"/"); ok {
		path = rest
	}
	return filepath.Join(root, path)
}

// rootPaths applies root to every path option in the struct behind ptr.
func rootPaths(ptr any, root string) error {
	opts, _, err := options(ptr)
	if err != nil {
		return err
	}
	for _, o := range opts {
		if !isPath(o.name) {
			continue
		}
		for _, s := range o.slots {
			if v := s.In(s.part); v.Kind() == reflect.String {
				v.SetString(underRoot(root, v.String()))
			}
		}
	}
	return nil
}

// logFile returns the log file in effect: log_file if set, otherwise the
// default; log_dir moves both unless log_file is absolute.
func (t *Tree) logFile(file, dir, usual string) string {
	if t.Values.At("log_file") == nil {
		file = usual
		if dir != "" {
			file = filepath.Base(usual)
		}
	}
	if dir != "" && file != "" && !filepath.IsAbs(file) && !uri.MatchString(file) {
		return filepath.Join(dir, file)
	}
	return file
}

// sockDir moves the socket directory to a path that is short enough for a
// socket, by Salt's rule.
func sockDir(sock, cache string) string {
	if len(sock) > len(cache)+10 {
		return filepath.Join(cache, ".salt-unix")
	}
	return sock
}

// WarnPaths logs directories and programs that options name and that are not there. ptr points to the struct with the
// options. It is for daemons, as WarnUnknown.
func (t *Tree) WarnPaths(ptr any) {
	t.warnUnread()
	switch id := t.Values.Str("id"); {
	case strings.ContainsAny(id, " \t"):
		t.warn("id", "the id has a blank: quote it in targets for a shell, or choose another id")
	case strings.ContainsAny(id, "*?[],"):
		t.warn("id", "the id has a character that means something else in targets, one of * ? [ ] and commas: choose another id")
	}
	for _, key := range []string{"file_roots", "pillar_roots"} {
		roots, _ := t.Values.At(key).(*value.Dict)
		for env, dirs := range roots.All() {
			l, ok := dirs.(*value.List)
			if !ok {
				continue // Remarks has it
			}
			for i, dir := range value.Texts(l) {
				t.warnDir(key, fmt.Sprintf("%s[%d]: ", value.Str(env), i), dir)
			}
		}
	}
	if program := t.Values.Str("python"); program != "" {
		if _, err := exec.LookPath(program); err != nil {
			t.warn("python", "modules of the user's own will not run: "+err.Error())
		}
	}
	opts, _, err := options(ptr)
	if err != nil {
		return // Decode reports it
	}
	for _, o := range opts {
		if !strings.HasSuffix(o.name, "_dirs") || o.name == "append_minionid_config_dirs" {
			continue
		}
		dirs, _ := o.slots[0].In(o.slots[0].part).Interface().([]string)
		for _, dir := range dirs {
			t.warnDir(o.name, "", dir)
		}
	}
}

// warnUnread logs files beside those that default_include names whose names suggest that they should be
// read.
func (t *Tree) warnUnread() {
	if _, set := t.Values.Get("default_include"); set {
		return
	}
	pattern := filepath.Join(filepath.Dir(t.Path), t.Kind.include())
	entries, err := os.ReadDir(filepath.Dir(pattern))
	if err != nil {
		return // not there, or Load reports it
	}
	for _, e := range entries {
		name := e.Name()
		if e.Type().IsRegular() && !isMatch(pattern, filepath.Join(filepath.Dir(pattern), name)) && !putAside(name) {
			t.log.Warn("file of the configuration is not read: the names of files must match "+t.Kind.include(), "path", filepath.Join(filepath.Dir(pattern), name))
		}
	}
}

// isMatch reports whether default_include names a file. Hidden files are not named.
func isMatch(pattern, path string) bool {
	ok, err := filepath.Match(pattern, path)
	return ok && err == nil && !strings.HasPrefix(filepath.Base(path), ".")
}

// aside are the ends of the names of files that editors, package managers and administrators put aside.
var aside = strings.Fields(`~ .bak .backup .disabled .dist .example .md .off .old .orig .rej .rpmnew .rpmorig .rpmsave .rst .sample .save .swo .swp
	.template .tmp .ucf-dist .ucf-new .ucf-old`)

// putAside reports whether the name of a file says that it shall not be read.
func putAside(name string) bool {
	return strings.HasPrefix(strings.ToUpper(name), "README") || strings.HasPrefix(name, ".") && !strings.HasSuffix(name, ".conf") ||
		strings.HasPrefix(name, "#") || strings.Contains(name, ".dpkg-") || slices.ContainsFunc(aside, func(end string) bool { return strings.HasSuffix(name, end) })
}

// warnDir logs a directory that is not there.
func (t *Tree) warnDir(key, at, dir string) {
	if strings.Contains(dir, "__env__") { // stands for environments
		return
	}
	found := []string{dir}
	if strings.ContainsAny(dir, "*?[") {
		if found, _ = filepath.Glob(dir); len(found) == 0 {
			t.warn(key, at+"no directory matches "+dir)
		}
	}
	for _, dir := range found {
		st, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			t.warn(key, at+"there is no directory "+dir)
		case err != nil:
			t.warn(key, at+err.Error())
		case !st.IsDir() && found[0] == dir && len(found) == 1:
			t.warn(key, at+dir+" is not a directory")
		}
	}
}
