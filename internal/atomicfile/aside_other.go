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

func name(*os.File, string) (string, error) { return "", errors.ErrUnsupported }
