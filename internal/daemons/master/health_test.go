package master

import (
	"testing"

	"brine/internal/py/value"
)

// TestHealthAfterReload: masters compare the current options, not those from the
// start.
func TestHealthAfterReload(t *testing.T) {
	p := newParts(t, nil, nil)
	h := &health{settings: p.settings}
	before := h.sums()
	p.cfg.Opts = value.DictOf("nodegroups", value.DictOf("web", "web*"))
	p.settings.set(p.cfg)
	after := h.sums()
	if before.Str("nodegroups") == after.Str("nodegroups") || before.Str("file_roots") != after.Str("file_roots") {
		t.Errorf("%s after a reload, %s before", value.Repr(after), value.Repr(before))
	}
}
