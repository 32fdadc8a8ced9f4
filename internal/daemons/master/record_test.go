package master

import (
	"bytes"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/call/audit"
	"brine/internal/py/value"
)

func TestUnauthenticatedRefusalsAreBounded(t *testing.T) {
	s := newRefusalLimit()
	now := time.Unix(1e9, 0)
	taken := 0
	for range 100 {
		if _, ok := s.Admit(now); ok {
			taken++
		}
	}
	if taken != 10 {
		t.Errorf("%d were recorded", taken)
	}
	if skipped, ok := s.Admit(now.Add(10 * time.Second)); !ok || skipped != 90 {
		t.Errorf("later: %d %v", skipped, ok)
	}
}

// TestAuditThatCannotBeWritten: audit records that cannot be written are all logged, however
// many refusals are logged as well.
func TestAuditThatCannotBeWritten(t *testing.T) {
	a, err := audit.Open(filepath.Join(t.TempDir(), "audit"), []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	r := &recorder{audit: a, log: log, unauthenticated: newRefusalLimit()}
	refusals := ratelimit.NewLog(log, 10, 10*time.Second)
	for i := range 50 {
		refusals.Log(slog.LevelWarn, "refused")
		r.keep(entry("amy", "eauth", value.DictOf("fun", fmt.Sprintf("cmd.run%d\nx=y", i), "tgt", "*", "arg", value.ListOf("secret"))))
	}
	for i := range 50 {
		if !strings.Contains(out.String(), fmt.Sprintf("cmd.run%d\\", i)) {
			t.Fatalf("record %d is lost:\n%s", i, out.String())
		}
	}
	if !strings.Contains(out.String(), "amy") || strings.Contains(out.String(), "secret") || strings.Contains(out.String(), "\nx=y") {
		t.Error(out.String())
	}
}
