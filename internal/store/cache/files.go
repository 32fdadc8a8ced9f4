package cache

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
)

// files is a directory in the layout of localfs as a Driver.
type files struct{ c *Cache }

// Files returns the banks of localfs in a cachedir as a Driver, for copying them. A master uses a Cache.
func Files(cachedir string) Driver {
	return files{New(cachedir, Options{Driver: Local}, nil)}
}

func (f files) Store(_ context.Context, bank, key string, data []byte) error {
	path, err := f.c.file(bank, key)
	if err == nil {
		err = f.c.write(bank, path, data)
	}
	return err
}

func (f files) Fetch(_ context.Context, bank, key string) ([]byte, error) {
	path, err := f.c.file(bank, key)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, salt.Errorf(salt.Unavailable, "cannot read the cache: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		return nil, salt.Errorf(salt.Invalid, "%s is not a file, or is larger than %d bytes", path, maxFile)
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot read the cache: %w", err)
	}
	return b, nil
}

func (f files) Written(_ context.Context, bank, key string) (time.Time, error) {
	path, err := f.c.file(bank, key)
	if err != nil {
		return time.Time{}, err
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, salt.Errorf(salt.Unavailable, "cannot read the cache: %w", err)
	}
	return info.ModTime().Truncate(time.Second), nil
}

func (f files) Each(ctx context.Context, banks []string, key string, _ []string) ([]Value, error) {
	out := make([]Value, len(banks))
	for i, b := range banks {
		data, err := f.Fetch(ctx, b, key)
		if err != nil {
			return nil, err
		}
		out[i].Data = data
	}
	return out, nil
}

func (f files) Flush(_ context.Context, bank, key string) error {
	_, err := f.c.Flush(bank, key)
	return err
}

func (f files) List(_ context.Context, bank string) ([]string, error) { return f.c.List(bank) }

func (f files) Close() error { return nil }

// ReadStamp reads the time that Salt's drivers write beside a value: seconds as msgpack. It returns the zero
// time for anything else.
func ReadStamp(b []byte) time.Time {
	v, err := msgpack.UnmarshalTyped(b)
	if n, ok := v.(int64); ok && err == nil {
		return time.Unix(n, 0)
	}
	return time.Time{}
}
