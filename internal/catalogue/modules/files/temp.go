package files

import (
	"context"
	"os"
	"path/filepath"

	"brine/internal/call/fn"
)

func init() { units.Declare("temp", tempModule) }

type temp struct{}

func tempModule() fn.Module {
	return fn.Module{Name: "temp", Doc: `Temporary files and directories, which nothing removes.`, Funcs: []fn.Func{
		fn.Of("dir", temp{}.dir, `Create a directory that only the minion's user may enter, and return its path.`, fn.Example("salt '*' temp.dir prefix=work-")),
		fn.Of("file", temp{}.file, `Create an empty file that only the minion's user may read, and return its path.`, fn.Example("salt '*' temp.file suffix=.conf")),
	}}
}

type tempArgs struct {
	Suffix string `salt:"suffix" doc:"end of the name" default:""`
	Prefix string `salt:"prefix" doc:"beginning of the name" default:"tmp"`
	Parent string `salt:"parent" doc:"directory of the new one; null: that for temporary files" default:"null"`
}

// pattern returns the arguments of os.MkdirTemp and os.CreateTemp.
func (a tempArgs) pattern() (dir, pattern string, err error) {
	if filepath.Base(a.Prefix) != a.Prefix && a.Prefix != "" || filepath.Base(a.Suffix) != a.Suffix && a.Suffix != "" {
		return "", "", fn.Invalidf("prefix and suffix are parts of a name; give the directory as parent")
	}
	return a.Parent, a.Prefix + "*" + a.Suffix, nil
}

func (temp) dir(_ context.Context, _ *fn.Call, a tempArgs) (string, error) {
	parent, pattern, err := a.pattern()
	if err != nil {
		return "", err
	}
	path, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return "", fn.Errorf("%w", err)
	}
	return path, nil
}

func (temp) file(_ context.Context, _ *fn.Call, a tempArgs) (string, error) {
	parent, pattern, err := a.pattern()
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(parent, pattern)
	if err != nil {
		return "", fn.Errorf("%w", err)
	}
	if err := f.Close(); err != nil {
		return "", fn.Errorf("%w", err)
	}
	return f.Name(), nil
}
