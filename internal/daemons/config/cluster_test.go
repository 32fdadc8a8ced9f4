package config

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestIdleClusterOptions: options of a cluster or a federation that have no effect are named.
func TestIdleClusterOptions(t *testing.T) {
	t.Parallel()
	const cluster = "cluster_id: c\nid: 127.0.0.1\ninterface: 127.0.0.1\n"
	for _, c := range []struct{ conf, named, unnamed string }{
		{"cluster_voters: [a, b, c]\ncluster_secret: abc\n", "cluster_id\" option=cluster_voters at=", ""},
		{"cluster_isolated_filesystem: True\n", "option=cluster_isolated_filesystem", ""},
		{"cluster_peers: [a]\n", "Cluster peers defined without a cluster_id", "no effect"},
		{cluster + "cluster_return_copies: 2\n", "option=cluster_return_copies", "without cluster_id"},
		{cluster + "cluster_isolated_filesystem: True\ncluster_secret: 5ee6f5b3c9d1a0b72f4c8e6d9a1b3c5d\ncluster_return_copies: 2\n", "", "no effect"},
		{"federation_site: eu\nfederation_events: ['salt/*']\n", "federation_urls\" option=federation_events at=", ""},
		{"federation_site: eu\nfederation_hub: True\nfederation_urls: ['tls://a:4515']\n", "", "no effect"},
		{"syndic_minions: {a: ['b*']}\n", "option=syndic_minions", ""},
		{"syndic_minions: {a: ['b*']}\norder_masters: True\n", "", "no effect"},
		{"", "", "no effect"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "master")
		if err := os.WriteFile(path, []byte("root_dir: "+dir+"\n"+c.conf), 0o600); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		if _, _, err := LoadMaster(path, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Errorf("%q: %v", c.conf, err)
		}
		if text := log.String(); !strings.Contains(text, c.named) || c.unnamed != "" && strings.Contains(text, c.unnamed) {
			t.Errorf("%q: %s", c.conf, text)
		}
	}
}

// TestRefusedFederation: options of a federation that would fail silently are refused.
func TestRefusedFederation(t *testing.T) {
	t.Parallel()
	for conf, text := range map[string]string{
		"federation_hub: True\n":                       "federation_hub needs federation_urls",
		"federation_urls: ['tls://a:4515']\n":          "federation_urls needs federation_hub",
		"federation_finger: [zz]\n":                    "\"zz\" is no fingerprint",
		"federation_urls: [a]\nfederation_hub: True\n": "has no scheme",
		"federation_finger: ['" + finger + "']\n":      "federation_finger needs federation_urls",
	} {
		path := filepath.Join(t.TempDir(), "master")
		if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := LoadMaster(path, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", conf, err)
		}
	}
}

var finger = strings.Repeat("3a:", 31) + "f1"
