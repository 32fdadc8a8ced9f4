package config

import (
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
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
