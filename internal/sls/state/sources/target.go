package sources

import (
	"path/filepath"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
)

// Target is the managed file of a template, as declared.
type Target struct {
	Name                     string
	User, Group, Mode, Attrs any
}

// Variables returns the variables of the template: given ones override facts
// about the file; of the given ones context comes first, then defaults, then
// more. source is the URL of the template. Values that are not maps are
// ignored.
func (t Target) Variables(source string, more *value.Dict, defaults, context any) *value.Dict {
	v := value.DictOf("name", t.Name, "source", source, "user", t.User, "group", t.Group, "mode", t.Mode, "attrs", t.Attrs)
	for _, m := range []any{more, defaults, context} {
		if d, ok := m.(*value.Dict); ok && d != nil {
			v.Update(d)
		}
	}
	return v
}

// BackUp copies a file before it changes, if mode or the minion's option
// backup_mode requires that.
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
