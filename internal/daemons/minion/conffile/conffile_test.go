package conffile

import (
	"os"
	"path/filepath"
	"testing"

	"brine/internal/py/value"
)

func TestPath(t *testing.T) {
	for _, c := range []struct {
		opts *value.Dict
		want string
	}{
		{value.DictOf("conf_file", "/etc/salt/minion"), "/etc/salt/minion.d/x.conf"},
		{value.DictOf("conf_file", "/etc/salt/minion", "default_include", "more/*.conf"), "/etc/salt/more/x.conf"},
		{value.NewDict(0), ""},
	} {
		if got, err := Path(c.opts, "x.conf", "an x"); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %q, %v", value.Repr(c.opts), got, err)
		}
	}
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "minion.d", "x.conf")
	if err := Write(path, "x", value.DictOf("a", int64(1))); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "x:\n  a: 1\n" {
		t.Errorf("%q, %v", b, err)
	}
	if err := Write(filepath.Join(path, "below", "a"), "x", nil); err == nil {
		t.Error("written below a file")
	}
}
