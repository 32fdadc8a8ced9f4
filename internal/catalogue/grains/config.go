package grains

import (
	"context"
	"fmt"
	"path/filepath"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

func init() { collectors.Register("config", grainsFile) }

// grainsFile reads the file "grains" beside the minion's configuration file. A
// syntax error is reported with file and line, and the file is treated as
// empty.
func grainsFile(_ context.Context, c *collection) (*value.Dict, error) {
	if c.ConfFile == "" {
		return nil, nil
	}
	dir := c.ConfFile
	if !c.IsDir(dir) {
		dir = filepath.Dir(dir)
	}
	path := filepath.Join(dir, "grains")
	if !c.IsFile(path) {
		return nil, nil
	}
	text, err := c.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the grains file: %w", err)
	}
	v, err := yaml.Load(text, path)
	if err != nil {
		return nil, fmt.Errorf("ignoring the grains file: %w", err)
	}
	switch x := v.(type) {
	case nil:
		return nil, nil
	case *value.Dict:
		return x, nil
	}
	return nil, fmt.Errorf("ignoring the grains file: %s: line 1: expected names and values, got a %s", path, value.TypeName(v))
}
