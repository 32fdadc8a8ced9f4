package config

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSenselessOptions: values of Brine's own options that make no sense are refused, and options that have no effect are named.
func TestSenselessOptions(t *testing.T) {
	t.Parallel()
	const master, minion = "master", "minion"
	for _, c := range []struct{ kind, conf, refused, named string }{
		{master, "hot_masters: ['']", "hot_masters: an entry is empty", ""},
		{master, "hot_masters: [a, a]", "hot_masters names a twice", ""},
		{master, "console_store: redis", "console_store", ""},
		{master, "console_store: pgjsonb\nconsole_store_days: -1", "console_store_days: -1 is less than 0", ""},
		{master, "approval_above: -1", "approval_above: -1 is less than 0", ""},
		{master, "min_minion_key_bits: 100000", "min_minion_key_bits: 100000 is more than 16384", ""},
		{master, "sign_in_rate: -5", "sign_in_rate: -5 is less than 0", ""},
		{master, "max_pending_keys: -1", "max_pending_keys", ""},
		{master, "minion_return_quota: -1", "minion_return_quota", ""},
		{master, "heartbeat_interval: -1", "heartbeat_interval: -1 is less than 0", ""},
		{master, "gather_job_grace: -0.5", "gather_job_grace: -0.5 is less than 0", ""},
		{master, "cache_timeout: -1", "cache_timeout", ""},
		{master, "returner_timeout: -1", "returner_timeout", ""},
		{master, "reactor_rate: -1", "reactor_rate", ""},
		{master, "python_helpers: 0", "python_helpers: 0 is less than 1", ""},
		{master, "python_helper_idle: -1", "python_helper_idle", ""},
		{master, "python_helper_memory: -1", "python_helper_memory", ""},
		{master, "python_call_timeout: -1", "python_call_timeout", ""},
		{master, "cluster_keep_deleted_seconds: -1", "cluster_keep_deleted_seconds: -1 is less than 0", ""},
		{master, "master_previous_key: ../x", "master_previous_key", ""},
		{master, "master_previous_key: master", "the present key pair", ""},
		{master, "profiling_address: 0.0.0.0:60", "profiling_address", ""},
		{master, "syndic_minions: {a: ['']}", "expected a glob", ""},
		{master, "trace_ratio: 0.5", "", "option=trace_ratio"},
		{master, "trace_ratio: 0.5\ntrace_endpoint: http://127.0.0.1:4318", "", ""},
		{master, "job_cache: False\njob_cache_files: True", "", "option=job_cache_files"},
		{master, "python_helper: False\npython_helpers: 2", "", "option=python_helpers"},
		{master, "heartbeat_interval: 0\nsign_in_rate: 0\napproval_above: 0\nreactor_rate: 0\ngather_job_grace: 0", "", ""},
		{master, "cluster_id: c\nhot_masters: [b]", "hot_masters is for masters that are no cluster", ""},
		{minion, "python_fallback: x", "python_fallback: expected salt or nothing", ""},
		{minion, "master_rebalance: -1", "master_rebalance: -1 is less than 0", ""},
		{minion, "heartbeat_interval: -1", "heartbeat_interval: -1 is less than 0", ""},
		{minion, "return_outbox_size: -1", "return_outbox_size", ""},
		{minion, "return_to: x", "return_to: expected publisher or any", ""},
		{minion, "python_call_timeout: -3", "python_call_timeout", ""},
		{minion, "master_zone: a", "", "option=master_zone"},
		{minion, "master_zone: a\nmaster_type: cluster", "", ""},
		{minion, "return_outbox: False\nreturn_outbox_size: 100", "", "option=return_outbox_size"},
		{minion, "trace_ratio: 0.5", "", "option=trace_ratio"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, c.kind)
		if err := os.WriteFile(path, []byte("root_dir: "+dir+"\nid: m\n"+c.conf+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		var err error
		if c.kind == master {
			_, _, err = LoadMaster(path, logger)
		} else {
			_, _, err = LoadMinion(path, false, logger)
		}
		if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s, %s: %v", c.kind, c.conf, err)
		}
		if text := log.String(); err == nil && (!strings.Contains(text, c.named) || c.named == "" && strings.Contains(text, "no effect")) {
			t.Errorf("%s, %s: %s", c.kind, c.conf, text)
		}
	}
}
