package extmods

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxEntryPoints bounds how much of a file entry_points.txt is read, in bytes.
const maxEntryPoints = 64 << 10

// installed returns the directories of the packages of the Salt extensions that are installed for
// a Python, as Salt finds them: entry points of the group salt.loader name them. program is the
// option python, or "" for the system's python3.
//
// Python is not run for that. So the directories that a function returns (package:function) are
// taken to be those of its package, as in all extensions that are made of Salt's template.
func installed(program string) (packages []string) {
	for _, site := range siteDirs(program) {
		for _, p := range sites.packages(site) {
			if !slices.Contains(packages, p) {
				packages = append(packages, p)
			}
		}
	}
	return packages
}

// siteDirs returns the directories in which a Python finds installed packages.
func siteDirs(program string) (dirs []string) {
	if program == "" {
		program = "/usr/bin/python3"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return nil
	}
	prefix := filepath.Dir(filepath.Dir(path))
	version := "python3*"
	if real, err := filepath.EvalSymlinks(path); err == nil && strings.HasPrefix(filepath.Base(real), "python3.") {
		version = filepath.Base(real)
	}
	patterns := []string{"local/lib/" + version + "/dist-packages", "lib/" + version + "/site-packages", "lib/python3/dist-packages",
		"extras-" + strings.TrimPrefix(version, "python")} // where salt-pip of Salt's packages installs
	for _, pattern := range patterns {
		found, _ := filepath.Glob(filepath.Join(prefix, pattern))
		dirs = append(dirs, found...)
	}
	return dirs
}

// siteCache remembers the extensions of each directory of packages until it changes.
type siteCache struct {
	mu    sync.Mutex
	known map[string]site
}

type site struct {
	changed  time.Time
	packages []string
}

var sites = siteCache{known: map[string]site{}}

// packages returns the package directories of the extensions in a directory.
func (c *siteCache) packages(dir string) []string {
	info, err := os.Stat(dir)
	if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.known[dir]; ok && s.changed.Equal(info.ModTime()) {
		return s.packages
	}
	s := site{changed: info.ModTime()}
	for _, kind := range []string{"*.dist-info", "*.egg-info"} {
		files, _ := filepath.Glob(filepath.Join(dir, kind, "entry_points.txt"))
		for _, file := range files {
			s.packages = append(s.packages, loaderPackages(dir, file)...)
		}
	}
	c.known[dir] = s
	return s.packages
}

// loaderPackages returns the package directories that a file entry_points.txt names in the group
// salt.loader.
func loaderPackages(dir, file string) (packages []string) {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxEntryPoints))
	within := false
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			within = line == "[salt.loader]"
			continue
		}
		_, object, ok := strings.Cut(line, "=")
		if !within || !ok {
			continue
		}
		module, _, _ := strings.Cut(object, ":")
		parts := strings.Split(strings.TrimSpace(module), ".")
		for ; len(parts) > 0; parts = parts[:len(parts)-1] { // package.loader:function is in a file of the package
			if slices.ContainsFunc(parts, func(p string) bool { return p == "" || strings.ContainsAny(p, `/\`) }) {
				break
			}
			path := filepath.Join(append([]string{dir}, parts...)...)
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				packages = append(packages, path)
				break
			}
		}
	}
	return packages
}
