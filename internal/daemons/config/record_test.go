package config

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStoreOfRecordNeedsCluster: a store of record that would have no effect is refused, and a secret
// without a store is named.
func TestStoreOfRecordNeedsCluster(t *testing.T) {
	const secret = "\nstore_of_record_secret: 0f4d1b0a3f2e6c5d8b7a9e0f1c2d3b4a\n"
	for _, c := range []struct{ conf, fault, warning string }{
		{"store_of_record: etcd" + secret, "store_of_record needs cluster_id", ""},
		{"store_of_record: mysql" + secret, "use etcd or postgres", ""},
		{"store_of_record: etcd\ncluster_id: c\nid: a" + secret, "store_of_record needs cluster_isolated_filesystem", ""},
		{secret, "", "store_of_record_secret has no effect"},
		{"", "", ""},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "master")
		if err := os.WriteFile(path, []byte("root_dir: "+dir+"\n"+c.conf), 0o600); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		_, _, err := LoadMaster(path, slog.New(slog.NewTextHandler(&log, nil)))
		if (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%q: %v, want %q", c.conf, err, c.fault)
		}
		if has := strings.Contains(log.String(), "store_of_record_secret has no effect"); has != (c.warning != "") {
			t.Errorf("%q: %s", c.conf, log.String())
		}
	}
}
