package sources

import (
	"path/filepath"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
)

// Target is the file that a template is for, as declared.
type Target struct {
	Name                     string
	User, Group, Mode, Attrs any
}

// Variables are those of the template: what is given goes before what is known
// of the file, first of all context, then defaults, then more. source is the
// URL of the template. Anything but a map gives nothing.
func (t Target) Variables(source string, more *value.Dict, defaults, context any) *value.Dict {
	v := value.DictOf("name", t.Name, "source", source, "user", t.User, "group", t.Group, "mode", t.Mode, "attrs", t.Attrs)
	for _, m := range []any{more, defaults, context} {
		if d, ok := m.(*value.Dict); ok && d != nil {
			v.Update(d)
		}
	}
	return v
}

// BackUp keeps a copy of a file before it changes, if mode or the minion's
// option backup_mode asks for that.
func BackUp(config fn.Reader, name string, mode any) error {
	if mode == nil || mode == "" {
		mode = config.Get("backup_mode")
	}
	if m := value.Str(mode); m != "minion" && m != "both" {
		return nil
	}
	dir, _ := config.Get("cachedir").(string)
	if err := filesys.Backup(name, filepath.Join(dir, "file_backup"), time.Now()); err != nil {
		return fn.Errorf("Failed to back up %s: %w", name, atomicfile.Cause(err))
	}
	return nil
}
