// Package conffile writes the files of functions such as schedule.save into the
// directory of the option default_include, where the next start reads them.
package conffile

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"brine/internal/base/atomicfile"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// Path returns the path of the file name, by the minion's options conf_file and
// default_include. what describes its content, for errors.
func Path(opts *value.Dict, name, what string) (string, error) {
	conf, _ := opts.At("conf_file").(string)
	if conf == "" {
		return "", fmt.Errorf("the option conf_file is not set, so there is no place for %s", what)
	}
	include, _ := opts.At("default_include").(string)
	return filepath.Join(filepath.Dir(conf), filepath.Dir(cmp.Or(include, "minion.d/*.conf")), name), nil
}

// Write writes one option to its own file.
func Write(path, option string, v any) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("cannot save the option %s: %w", option, err)
	}
	if err := atomicfile.Write(path, []byte(yaml.Dump(value.DictOf(option, v))), 0o644, true); err != nil {
		return fmt.Errorf("cannot save the option %s: %w", option, err)
	}
	return nil
}
