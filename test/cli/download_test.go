package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"brine/test/daemontest"
)

// TestArchiveDownload extracts an archive of a web server: test mode does not ask the server.
func TestArchiveDownload(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("sh", "-c", `cd "$1" && mkdir app && echo hi > app/f && tar czf a.tar.gz app`, "sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.ServeFile(w, r, dir+"/a.tar.gz")
	}))
	defer server.Close()
	config := filepath.Join(dir, "minion")
	if err := os.WriteFile(config, []byte("root_dir: "+dir+"/root\nfile_client: local\nid: one\nenable_fqdns_grains: false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	apply := func(more ...string) string {
		args := append([]string{"-c", dir, "--local", "--out=json", "state.single", "archive.extracted", "name=" + dir + "/out",
			"source=" + server.URL + "/a.tar.gz", "skip_verify=True"}, more...)
		out, err := daemontest.Brine.Command(t.Context(), t, "salt-call", args...).Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	would := apply("test=True")
	if asked.Load() != 0 || !strings.Contains(would, "would be cached (if necessary)") || !strings.Contains(would, `"result": null`) {
		t.Errorf("the server was asked %d times by a test, which says %s", asked.Load(), would)
	}
	if done := apply(); !strings.Contains(done, `"app/f"`) {
		t.Errorf("a run says %s", done)
	}
	if text, err := os.ReadFile(dir + "/out/app/f"); string(text) != "hi\n" || err != nil {
		t.Errorf("unpacked %q, %v", text, err)
	}
	if again := apply(); !strings.Contains(again, "All files in archive are already present") || !strings.Contains(again, `"changes": {}`) {
		t.Errorf("a second run says %s", again)
	}
}
