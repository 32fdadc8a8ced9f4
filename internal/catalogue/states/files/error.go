package files

import (
	"errors"
	"io/fs"
	"os"
)

// cause takes the name of the system call off an error.
func cause(err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		return p.Err
	case errors.As(err, &l):
		return l.Err
	}
	return err
}
