package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestLogsOfAJob: with log_format json, a job id finds what all daemons logged about a job, and the
// command line stays readable.
func TestLogsOfAJob(t *testing.T) {
	host := daemontest.Host()
	m := daemontest.NewMaster(t, daemontest.Brine, "master", host, "auto_accept: true\nlog_format: json\nlog_level_logfile: debug\nlog_file: /m.log\n")
	m.Start()
	n := daemontest.NewMinion(t, daemontest.Brine, "alpha", []string{host}, "log_format: json\nlog_level_logfile: debug\nlog_file: /n.log\n").Start()
	eventually.Nil(t, time.Minute, "alpha answers", func() error { return m.PingAll(daemontest.Brine, "alpha") })
	out, stderr, code := m.Run(daemontest.Brine, "salt", "alpha", "test.echo", "hello", "--show-jid", "-l", "debug")
	jid := ""
	for line := range strings.Lines(out) {
		if s, ok := strings.CutPrefix(line, "jid: "); ok {
			jid = strings.TrimSpace(s)
		}
	}
	if code != 0 || jid == "" || strings.Contains(stderr, `{"time"`) {
		t.Fatalf("%d %s %s", code, out, stderr)
	}
	for name, file := range map[string]string{"master": m.Path("m.log"), "minion": n.Path("n.log")} {
		eventually.Nil(t, time.Minute, "the job in the log of the "+name, func() error {
			b, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			found := 0
			for line := range strings.Lines(string(b)) {
				if !strings.HasSuffix(line, "\n") {
					break // still written
				}
				var d map[string]any
				if err := json.Unmarshal([]byte(line), &d); err != nil || d["msg"] == "" || d["level"] == nil || d["logger"] == nil {
					t.Fatalf("%s: %v: %s", name, err, line)
				}
				if d["jid"] == jid {
					found++
				}
			}
			if found == 0 {
				return fmt.Errorf("no line with the job id %s", jid)
			}
			return nil
		})
	}
}
