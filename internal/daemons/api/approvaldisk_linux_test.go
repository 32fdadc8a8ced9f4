package api

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// TestApprovalsFullDisk: a job that cannot be stored is refused instead of lost by the next restart, and so is an
// approval that cannot be recorded, since the job could start twice. The jobs that wait stay as they are.
func TestApprovalsFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("cannot mount a small file system:", err)
	}
	t.Cleanup(func() { syscall.Unmount(disk, 0) })
	s := settings(t, "")
	s.Clients = append(s.Clients, "local_async")
	s.SessionsDir = filepath.Join(disk, "sessions")
	r := serve(t, s)
	r.master.perms = []any{"test.*"}
	var started atomic.Int32
	r.master.low = func(chunk *value.Dict) ([]any, error) {
		if chunk.Str(wire.ApproverKey) == "" {
			return nil, &salt.Error{Kind: salt.Invalid, Err: &client.Refused{Name: wire.ApprovalRequired, Text: "this job is for 200 minions"}}
		}
		started.Add(1)
		return []any{value.DictOf("jid", "20260101000000000000")}, nil
	}
	ann := r.login()
	resp, _ := r.do("POST", "/login", "username=bob&password=p&eauth=x", "Content-Type", form)
	bob := resp.Header.Get("X-Auth-Token")
	ask := func() (int, string) {
		resp, b := r.do("POST", "/v1/jobs", `{"tgt": "*", "fun": "test.ping"}`, "Content-Type", typeJSON, "X-Auth-Token", ann)
		return resp.StatusCode, b
	}
	kept := func() (id string) {
		t.Helper()
		code, b := ask()
		var in struct{ Approval string }
		if err := json.Unmarshal([]byte(b), &in); err != nil || code != 200 || in.Approval == "" {
			t.Fatal(code, b, err)
		}
		return in.Approval
	}
	decide := func(what, method, id string, want int, text string) {
		t.Helper()
		resp, b := r.do(method, "/v1/approvals/"+id, "{}", "Content-Type", typeJSON, "X-Auth-Token", bob)
		if resp.StatusCode != want || !strings.Contains(b, text) {
			t.Errorf("%s: %d %s, want %d %s", what, resp.StatusCode, b, want, text)
		}
	}
	files := func() map[string]string {
		t.Helper()
		dir := filepath.Join(disk, "approvals")
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			out[e.Name()] = string(b)
		}
		return out
	}
	first, second, third := kept(), kept(), kept()
	before := files()
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}

	if code, b := ask(); code != http.StatusServiceUnavailable || !strings.Contains(b, "the job was refused") || !strings.Contains(b, "no space left on device") {
		t.Errorf("a job on a full disk: %d %s", code, b)
	}
	decide("an approval on a full disk", "POST", first, http.StatusServiceUnavailable, "the job waits further")
	if now := files(); len(now) != 3 || now[first] != before[first] || now[second] != before[second] || now[third] != before[third] {
		t.Errorf("the files of the jobs that waited: %v, before: %v", now, before)
	}
	resp, b := r.do("GET", "/v1/approvals", "", "X-Auth-Token", bob)
	if resp.StatusCode != 200 || strings.Count(b, `"state": "waiting"`) != 3 || started.Load() != 0 {
		t.Errorf("the list: %d %s; started: %d", resp.StatusCode, b, started.Load())
	}
	decide("a rejection on a full disk", "DELETE", third, 200, `"state": "rejected"`)

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	decide("an approval with space again", "POST", first, 200, `"jid": "20260101000000000000"`)
	if started.Load() != 1 {
		t.Errorf("started: %d", started.Load())
	}
	// A restart on a disk that cannot be changed loses no job because of a damaged one.
	if err := os.WriteFile(filepath.Join(disk, "approvals", newID()), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	users, err := openSessions(s.SessionsDir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	list, err := (&approvalFiles{filepath.Join(disk, "approvals"), users}).load()
	if len(list) != 1 || list[0].id != second || list[0].state != waiting || err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("after a restart: %+v %v", list, err)
	}
}
