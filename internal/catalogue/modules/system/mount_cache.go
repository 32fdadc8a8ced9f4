package system

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// cached returns the functions for the file mounts below cachedir, in which
// Salt stores mount options. Brine's states do not need it.
func (x mountFuncs) cached() []fn.Func {
	return []fn.Func{
		fn.Of("read_mount_cache", x.readCache, `Return what is kept in the cache of a mounted directory.`,
			fn.Example("salt '*' mount.read_mount_cache /mnt/share")),
		fn.Of("write_mount_cache", x.writeCache, `Keep in the cache how a directory is mounted.`,
			fn.Example("salt '*' mount.write_mount_cache /mnt/share /dev/sda1 False ext4 defaults,nosuid")),
		fn.Of("delete_mount_cache", x.deleteCache, `Remove a directory from the cache.`, fn.Example("salt '*' mount.delete_mount_cache /mnt/share")),
	}
}

// cache returns the path of the cache and its content; a missing file counts
// as empty.
func (x mountFuncs) cache(c *fn.Call) (path string, all *value.Dict, err error) {
	dir, _ := c.Config.Get("cachedir").(string)
	if dir == "" {
		return "", nil, fn.Errorf("there is no cachedir")
	}
	path = filepath.Join(dir, "mounts")
	b, err := x.m.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, value.NewDict(1), nil
	}
	if err != nil {
		return path, nil, fn.Errorf("cannot read the cache of mounts: %w", err)
	}
	v, err := yaml.Load(b, path)
	if err != nil {
		return path, nil, fn.Errorf("the cache of mounts is no YAML: %w", err)
	}
	if all, _ = v.(*value.Dict); all == nil {
		all = value.NewDict(1)
	}
	return path, all, nil
}

func (x mountFuncs) store(path string, all *value.Dict) (bool, error) {
	text := yaml.Dump(all)
	err := atomicfile.Replace(x.m.Path(path), 0o600, func(w io.Writer) error { _, err := io.WriteString(w, text); return err })
	if err != nil {
		return false, fn.Errorf("Unable to write mount cache: %w", err)
	}
	return true, nil
}

type readCacheArgs struct {
	Name string `salt:"name" doc:"the directory"`
}

func (x mountFuncs) readCache(_ context.Context, c *fn.Call, a readCacheArgs) (any, error) {
	_, all, err := x.cache(c)
	if err != nil {
		return nil, err
	}
	if v, ok := all.Dict("mounts").Get(a.Name); ok {
		return v, nil
	}
	return value.NewDict(0), nil
}

type writeCacheArgs struct {
	Name   string `salt:"real_name" doc:"the directory"`
	Device any    `salt:"device" doc:"what is mounted"`
	Mkmnt  any    `salt:"mkmnt" doc:"whether the directory is to be made"`
	Type   any    `salt:"fstype" doc:"type of the file system"`
	Opts   any    `salt:"mount_opts" doc:"options"`
}

func (x mountFuncs) writeCache(_ context.Context, c *fn.Call, a writeCacheArgs) (bool, error) {
	path, all, err := x.cache(c)
	if err != nil {
		return false, err
	}
	if all.Dict("mounts") == nil {
		all.Set("mounts", value.NewDict(1))
	}
	all.Dict("mounts").Set(a.Name, value.DictOf("device", a.Device, "fstype", a.Type, "mkmnt", a.Mkmnt, "opts", a.Opts))
	return x.store(path, all)
}

type deleteCacheArgs struct {
	Name string `salt:"real_name" doc:"the directory"`
}

func (x mountFuncs) deleteCache(_ context.Context, c *fn.Call, a deleteCacheArgs) (bool, error) {
	path, all, err := x.cache(c)
	if err != nil || !all.Dict("mounts").Has(a.Name) {
		return err == nil, err
	}
	all.Dict("mounts").Delete(a.Name)
	return x.store(path, all)
}
