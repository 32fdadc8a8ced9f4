package fileserver

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"brine/internal/base/atomicfile"
)

// Update compares the files with those of the last call, which are stored in the file mtime_map: a line
// PATH:TIME for each, the time in seconds.
func (r *roots) Update(ctx context.Context) (Changes, error) {
	c := Changes{Backend: "roots", Changed: []string{}, Removed: []string{}, Added: []string{}}
	now, err := r.mtimes(ctx)
	if err != nil {
		return c, err
	}
	file := filepath.Join(r.noted, "mtime_map")
	before := readMtimes(file)
	for p, t := range before {
		switch n, ok := now[p]; {
		case !ok:
			c.Removed = append(c.Removed, p)
		case n != t:
			c.Changed = append(c.Changed, p)
		}
	}
	for p := range now {
		if _, ok := before[p]; !ok {
			c.Added = append(c.Added, p)
		}
	}
	for _, l := range [][]string{c.Changed, c.Removed, c.Added} {
		slices.Sort(l)
		c.Any = c.Any || len(l) > 0
	}
	if !c.Any {
		return c, nil
	}
	var b bytes.Buffer
	for _, p := range slices.Sorted(maps.Keys(now)) {
		if !strings.Contains(p, "\n") {
			fmt.Fprintf(&b, "%s:%s\n", p, now[p])
		}
	}
	if err := os.MkdirAll(r.noted, 0o755); err != nil {
		return c, err
	}
	return c, atomicfile.Write(file, b.Bytes(), 0o644, false)
}

// mtimes returns the modification times of all files, formatted as Python does.
func (r *roots) mtimes(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for _, root := range r.roots {
		for _, dir := range root.Dirs {
			err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
				if err != nil {
					return nil // unreadable, or removed in the meantime
				}
				if d.IsDir() || r.ignore.has(p) {
					return ctx.Err()
				}
				if st, err := os.Stat(p); err == nil && !st.IsDir() {
					out[p] = seconds(st.ModTime().UnixNano())
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// seconds formats a time as Python's float of seconds.
func seconds(ns int64) string {
	s := strconv.FormatFloat(float64(ns)/1e9, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func readMtimes(file string) map[string]string {
	out := map[string]string{}
	f, err := os.Open(file)
	if err != nil {
		return out
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if i := strings.LastIndexByte(lines.Text(), ':'); i > 0 {
			out[lines.Text()[:i]] = lines.Text()[i+1:]
		}
	}
	return out
}
