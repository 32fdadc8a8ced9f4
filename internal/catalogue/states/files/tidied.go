package files

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	"brine/internal/py/pyre"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{
			state.Of("tidied", f.tidied, `Remove the files below a directory that are old or large, and whose names match.`),
			state.Of("pruned", f.pruned, `Remove a directory that is empty, and with recurse the empty directories in it.`),
		}
	})
}

type tidiedArgs struct {
	Name       string    `salt:"name" doc:"path of the directory"`
	Age        int64     `salt:"age" doc:"days since the time that counts" default:"0"`
	Matches    any       `salt:"matches" doc:"regular expressions, one of which must match the beginning of a name; null: all names" default:"null"`
	RmDirs     bool      `salt:"rmdirs" doc:"remove directories, too" default:"false"`
	Size       any       `salt:"size" doc:"size in bytes, or with a unit such as 10M" default:"0"`
	Exclude    any       `salt:"exclude" doc:"regular expressions of names to keep" default:"null"`
	FullPath   bool      `salt:"full_path_match" doc:"the expressions are for whole paths" default:"false"`
	Follow     bool      `salt:"followlinks" doc:"enter directories that links lead to" default:"false"`
	Comparison any       `salt:"time_comparison" doc:"time that counts: atime, mtime or ctime" default:"atime"`
	Operator   string    `salt:"age_size_logical_operator" doc:"OR: old or large; AND: old and large" default:"OR"`
	Only       any       `salt:"age_size_only" doc:"age or size: look at nothing else" default:"null"`
	RmLinks    bool      `salt:"rmlinks" doc:"remove symbolic links, too" default:"true"`
	Kwargs     fn.Kwargs `salt:"kwargs"`
}

// tidying decides which paths are removed.
type tidying struct {
	tidiedArgs
	size            int64
	today           int64
	wanted, exclude []*pyre.Regexp
	found           []string
}

func (file) tidied(_ context.Context, e *state.Env, a tidiedArgs) (state.Plan, error) {
	a.Name = filesys.ExpandUser(a.Name)
	switch {
	case !filepath.IsAbs(a.Name):
		return state.Plan{}, fn.Errorf("Specified file %s is not an absolute path", a.Name)
	case !filesys.IsDir(a.Name):
		return state.Plan{}, fn.Errorf("%s does not exist or is not a directory.", a.Name)
	}
	t := &tidying{tidiedArgs: a, today: day(time.Now()), size: bytesOf(a.Size)}
	if a.Matches == nil {
		a.Matches = ".*"
	}
	var err error
	if t.wanted, err = expressions(a.Matches); err == nil {
		t.exclude, err = expressions(a.Exclude)
	}
	if err == nil {
		err = t.walk(a.Name)
	}
	switch {
	case err != nil:
		return state.Plan{}, err
	case len(t.found) == 0:
		return state.Plan{Comment: "Nothing to remove from directory " + a.Name}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: value.DictOf("removed", value.Strings(t.found)), Comment: a.Name + " is set for tidy"},
		Do: func(context.Context) (state.Change, error) {
			gone := value.ListOf()
			diff := value.DictOf("removed", gone)
			for _, path := range t.found {
				if err := filesys.Remove(path); err != nil {
					return state.Change{Diff: diff}, fn.Errorf("cannot remove %s: %w", path, atomicfile.Cause(err))
				}
				gone.Append(path)
			}
			return state.Change{Diff: diff, Comment: "Removed " + strconv.Itoa(len(t.found)) + " files or directories from directory " + a.Name}, nil
		},
	}}}, nil
}

// expressions compiles regular expressions.
func expressions(v any) ([]*pyre.Regexp, error) {
	var out []*pyre.Regexp
	for _, text := range value.Texts(v) {
		re, err := pyre.Compile(text, 0)
		if err != nil {
			return nil, fn.Errorf("%q is no regular expression: %w", text, err)
		}
		out = append(out, re)
	}
	return out, nil
}

// day returns the number of a day in local time.
func day(t time.Time) int64 {
	y, m, d := t.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400
}

// bytesOf parses a size such as 10M; an invalid one is 0. As in Salt, KB is
// 1000 bytes and KiB is 1024.
func bytesOf(v any) int64 {
	if n, ok := v.(int64); ok {
		return n
	}
	m := regexp.MustCompile(`^\s*([0-9.]*)\s*(b|[kmgtpezy](?:i?b)?|)\s*$`).FindStringSubmatch(strings.ToLower(value.Str(v)))
	if m == nil {
		return 0
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0
	}
	base := 1024.0
	if len(m[2]) == 2 {
		base = 1000
	}
	if m[2] != "" {
		for range strings.Index("bkmgtpezy", m[2][:1]) {
			n *= base
		}
	}
	return int64(n)
}

// walk visits the content of a directory, deepest first.
func (t *tidying) walk(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return nil // removed, or unreadable
	}
	entries, err := d.ReadDir(-1)
	d.Close()
	if err != nil {
		return nil
	}
	var dirs, files []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		link := e.Type()&fs.ModeSymlink != 0
		if !e.IsDir() && (!link || !filesys.IsDir(path)) {
			files = append(files, path)
			continue
		}
		dirs = append(dirs, path)
		if !link || t.Follow && !circular(path, dir) {
			if err := t.walk(path); err != nil {
				return err
			}
		}
	}
	for _, path := range append(files, dirs...) {
		if ok, err := t.due(path); err != nil {
			return err
		} else if ok {
			t.found = append(t.found, path)
		}
	}
	return nil
}

// circular reports whether a link leads to a directory that contains it.
func circular(link, dir string) bool {
	to, err := filepath.EvalSymlinks(link)
	if err != nil {
		return true
	}
	real, err := filepath.EvalSymlinks(dir)
	return err != nil || real == to || strings.HasPrefix(real, strings.TrimSuffix(to, "/")+"/")
}

// due reports whether a path must be removed.
func (t *tidying) due(path string) (bool, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return false, nil
	}
	size := st.Size()
	switch {
	case st.Mode()&fs.ModeSymlink != 0:
		if size = 0; !t.RmLinks {
			return false, nil
		}
	case st.IsDir():
		if size = 0; !t.RmDirs {
			return false, nil
		}
	}
	age := t.today - day(t.moment(st))
	old, large := max(age, -age) >= t.Age, size >= t.size
	due := old || large
	switch only := strings.ToLower(value.Str(t.Only)); {
	case only == "age":
		due = old
	case only == "size":
		due = large
	case strings.EqualFold(t.Operator, "AND"):
		due = old && large
	}
	name := filepath.Base(path)
	if t.FullPath {
		name = path
	}
	if !due {
		return false, nil
	}
	if ok, err := matchesAny(t.wanted, name); err != nil || !ok {
		return false, err
	}
	kept, err := matchesAny(t.exclude, name)
	return !kept, err
}

func matchesAny(all []*pyre.Regexp, name string) (bool, error) {
	for _, re := range all {
		m, err := re.Match(name)
		if err != nil {
			return false, fn.Errorf("the regular expression %s takes too long on %s: %w", re, name, err)
		}
		if m != nil {
			return true, nil
		}
	}
	return false, nil
}

// moment returns the time that is compared.
func (t *tidying) moment(st fs.FileInfo) time.Time {
	sys, ok := st.Sys().(*syscall.Stat_t)
	what, _ := t.Comparison.(string)
	switch what = strings.ToLower(what); {
	case !ok || what == "mtime":
		return st.ModTime()
	case what == "ctime":
		return time.Unix(sys.Ctim.Unix())
	}
	return time.Unix(sys.Atim.Unix())
}

type prunedArgs struct {
	Name         string `salt:"name" doc:"path of the directory"`
	Recurse      bool   `salt:"recurse" doc:"remove the empty directories in it first" default:"false"`
	IgnoreErrors bool   `salt:"ignore_errors" doc:"with recurse, do not mind directories that cannot be removed" default:"false"`
	OlderThan    any    `salt:"older_than" doc:"only directories that did not change for so many days" default:"null"`
}

func (file) pruned(_ context.Context, e *state.Env, a prunedArgs) (state.Plan, error) {
	name := filesys.ExpandUser(a.Name)
	recurse := a.Recurse || a.IgnoreErrors
	if !filesys.IsDir(name) {
		return state.Plan{Comment: "Directory " + name + " is not present"}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: value.DictOf("deleted", name), Comment: "Directory " + name + " is set for removal"},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := e.Exec(ctx, "file.rmdir", value.DictOf("recurse", recurse, "verbose", true, "older_than", a.OlderThan), name)
			if err != nil {
				return state.Change{}, err
			}
			ret, _ := v.(*value.Dict)
			gone := value.Texts(ret.At("deleted"))
			switch ok := ret.Bool("result"); {
			case ok && !recurse:
				return state.Change{Diff: value.DictOf("deleted", name), Comment: "Removed directory " + name}, nil
			case recurse && len(gone) > 0 && (ok || a.IgnoreErrors):
				return state.Change{Diff: value.DictOf("deleted", value.Strings(slices.Sorted(slices.Values(gone)))),
					Comment: "Recursively removed empty directories under " + name}, nil
			case ok:
				return state.Change{}, nil
			}
			return state.Change{Diff: value.DictOf("deleted", ret.At("deleted"), "errors", ret.At("errors"))},
				fn.Errorf("Failed to remove directory %s", name)
		},
	}}}, nil
}
