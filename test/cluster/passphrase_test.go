package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/servertest"
)

// TestPassphrasesThatSaltReads: keys created while a passphrase is set are encrypted with it, for
// other masters and for Salt; a key created without one is unchanged.
func TestPassphrasesThatSaltReads(t *testing.T) {
	t.Parallel()
	const passes = "cluster_key_pass: sesame\nkey_pass: own word\n"
	f := newFleet(t, passes, brine, brine).start()
	shared := filepath.Join(f.shared, "pki/cluster.pem")
	own := f.masters[0].Path("etc/salt/pki/master/master.pem")
	words := map[string]string{shared: "sesame", own: "own word"}
	for path := range words {
		if b, err := os.ReadFile(path); err != nil || !bytes.Contains(b, []byte("ENCRYPTED")) {
			t.Errorf("%s is not encrypted: %v", path, err)
		}
	}
	f.masters[0].Kill()
	f.masters[0].Start() // it reads its own key

	wrong := f.master(brine, daemontest.Host(), nil, "cluster_key_pass: other\n")
	wrong.Launch()
	if wrong.Wait(40e9) == 0 || !strings.Contains(wrong.Log(), shared) || !strings.Contains(wrong.Log(), "passphrase") {
		t.Errorf("with a wrong passphrase: %s", wrong.Log())
	}

	plain := newFleet(t, "", brine).start()
	before, err := os.ReadFile(filepath.Join(plain.shared, "pki/cluster.pem"))
	if err != nil || bytes.Contains(before, []byte("ENCRYPTED")) {
		t.Errorf("without a passphrase: %v", err)
	}
	plain.master(brine, daemontest.Host(), nil, passes).Start()

	t.Run("Salt reads them", func(t *testing.T) {
		for path, word := range words {
			servertest.StockPython(t.Context(), t, "import sys\nimport salt.crypt\nassert salt.crypt.PrivateKey(sys.argv[1], sys.argv[2]).key.key_size >= 2048\n",
				map[string]string{"cryptography": "python3-cryptography"}, path, word)
		}
	})
}
