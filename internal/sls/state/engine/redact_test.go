package engine_test

import (
	"log/slog"
	"strings"
	"testing"

	"brine/internal/py/value"
	"brine/internal/sls/state/engine"
)

// TestPasswordsOfIDsAreNotLogged uses an id that is a URL with a password.
func TestPasswordsOfIDsAreNotLogged(t *testing.T) {
	var out strings.Builder
	d := deps(t)
	d.Log = slog.New(slog.NewTextHandler(&out, nil))
	for _, fun := range []string{"fail_without_changes", "succeed_without_changes"} {
		engine.New(d, engine.Options{}).Run(t.Context(), []*value.Dict{value.DictOf("state", "test", "fun", fun,
			"__id__", "https://u:secret@example.com/x.git", "name", "x", "__sls__", "s", "__env__", "base", "order", int64(1))})
	}
	if s := out.String(); !strings.Contains(s, "https://<redacted>@example.com/x.git") || strings.Contains(s, "secret") {
		t.Errorf("logged:\n%s", s)
	}
}

// TestPasswordsStayOutOfResults checks that comments and warnings of a state,
// and errors of functions, quote URLs without passwords.
func TestPasswordsStayOutOfResults(t *testing.T) {
	res := engine.New(deps(t), engine.Options{}).Run(t.Context(),
		[]*value.Dict{value.DictOf("state", "test", "fun", "configurable_test_state", "__id__", "x", "name", "x",
			"comment", "cannot fetch git+https://u:S3CRET@example.com/x", "warnings", "ftp://u:S3CRET@example.com", "__sls__", "s", "__env__", "base",
			"order", int64(1))})
	for _, r := range res.All() {
		if text := value.Repr(r); strings.Contains(text, "S3CRET") || !strings.Contains(text, "cannot fetch git+https://<redacted>@example.com/x") ||
			!strings.Contains(text, "'ftp://<redacted>@example.com'") {
			t.Error(text)
		}
	}
}
