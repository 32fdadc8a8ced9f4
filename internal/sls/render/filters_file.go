package render

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"brine/internal/py/jinja"
	"brine/internal/py/value"
)

// The filters in this file read the machine on which the template is rendered.

type apartKey struct{}

// Apart returns a context for rendering templates of another machine: filters that
// would read this machine or open connections fail. refuse returns the error for a
// filter.
func Apart(ctx context.Context, refuse func(filter string) error) context.Context {
	return context.WithValue(ctx, apartKey{}, refuse)
}

// MachineFilters returns the names of these filters, sorted.
func MachineFilters() []string {
	return []string{"dns_check", "file_hashsum", "get_uid", "http_query", "is_bin_file", "is_empty", "is_text_file", "list_files", "which"}
}

// machineFilter declares a filter that reads the machine, or connects to others.
func machineFilter(sig string, do func(c *jinja.Call) (any, error)) *jinja.Func {
	name, _, _ := strings.Cut(sig, "(")
	return filter(sig, func(c *jinja.Call) (any, error) {
		if refuse, ok := c.Ctx.Value(apartKey{}).(func(string) error); ok {
			return nil, refuse(name)
		}
		return do(c)
	})
}

func fileFilters() []*jinja.Func {
	return []*jinja.Func{
		machineFilter("is_empty(filename)", func(c *jinja.Call) (any, error) {
			st, err := os.Stat(c.Str(0))
			return err == nil && st.Size() == 0, nil
		}),
		machineFilter("is_text_file(fp_, blocksize=512)", func(c *jinja.Call) (any, error) {
			b, ok := head(c.Str(0), min(max(c.Int(1), 0), 1<<20))
			return ok && !binary(b), nil
		}),
		machineFilter("is_bin_file(path)", func(c *jinja.Call) (any, error) {
			b, ok := head(c.Str(0), 2048)
			return ok && binary(b), nil
		}),
		machineFilter("list_files(directory)", func(c *jinja.Call) (any, error) {
			l := value.Strings([]string{c.Str(0)})
			err := filepath.WalkDir(c.Str(0), func(p string, _ fs.DirEntry, err error) error {
				c.Tick()
				if err == nil && p != c.Str(0) {
					c.Spend(len(p) + 16)
					l.Append(p)
				}
				return nil
			})
			return l, err
		}),
		machineFilter("which(exe=None)", func(c *jinja.Call) (any, error) {
			mustBeDefined(c.Bound[0])
			s, _ := jinja.Text(c.Bound[0])
			return which(s), nil
		}),
		filter("path_join(*parts, **kwargs)", func(c *jinja.Call) (any, error) {
			var parts []string
			for i, p := range c.Bound[0].(value.Tuple) {
				s, ok := jinja.Text(p)
				if !ok {
					return nil, wrongType("expected str, bytes, or bytearray not <class '%s'>", jinja.TypeName(p))
				}
				if i > 0 {
					s = strings.TrimLeft(filepath.Clean(s), "/")
				}
				parts = append(parts, s)
			}
			if len(parts) == 0 {
				return "", nil
			}
			if parts[0] == "" {
				parts[0] = "."
			}
			return filepath.Join(parts...), nil
		}),
		machineFilter("get_uid(user=None)", func(c *jinja.Call) (any, error) {
			if c.Bound[0] == nil {
				return int64(os.Geteuid()), nil
			}
			u, err := user.Lookup(c.Str(0))
			if err != nil {
				return nil, nil
			}
			n, err := strconv.ParseInt(u.Uid, 10, 64)
			return n, err
		}),
	}
}

func head(path string, n int) ([]byte, bool) {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() {
		return nil, false
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(n)))
	return b, err == nil
}

// binary guesses as Salt does: a zero byte, or more than three of ten bytes
// that are not text.
func binary(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	if bytes.IndexByte(b, 0) >= 0 {
		return true
	}
	if utf8.Valid(b) {
		return false
	}
	odd := 0
	for _, c := range b {
		if c >= 0x80 || c < 0x20 && strings.IndexByte("\n\r\t\f\b", c) < 0 || c == 0x7f {
			odd++
		}
	}
	return odd*10 > len(b)*3
}

// which searches a program like a shell, and in the directories of the system.
func which(exe string) any {
	runs := func(p string) bool {
		st, err := os.Stat(p)
		return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
	}
	if exe == "" {
		return nil
	}
	if runs(exe) && strings.Contains(exe, "/") {
		return exe
	}
	dirs := filepath.SplitList(os.Getenv("PATH"))
	for _, d := range append(dirs, "/sbin", "/bin", "/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin") {
		if p := filepath.Join(d, exe); runs(p) {
			return p
		}
	}
	return nil
}
