//go:build !linux

package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// Aside fails: there are no files without names.
func Aside(string, fs.FileMode, func(io.Writer) error) (*os.File, error) {
	return nil, errors.ErrUnsupported
}

func link(*os.File, string) error { return errors.ErrUnsupported }

func begin(*os.File) {}

func written(*os.File) error { return nil }
