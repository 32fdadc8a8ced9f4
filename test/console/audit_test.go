package console

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"brine/test/daemontest"
)

// TestChainOfAudit: the page Audit says from where to where the records are whole, and finds a record that was changed in the file.
func TestChainOfAudit(t *testing.T) {
	s := start(t, "")
	s.enter()
	for _, fun := range []string{"test.arg", "test.stream"} {
		if out, errs, code := s.master.Run(daemontest.Brine, "salt-run", fun); code != 0 {
			t.Fatal(out, errs)
		}
	}
	s.page("#/audit")
	s.until("the chain is whole", `/whole.*m1.*from record 1 .* to record \d+ /.test(document.querySelector("#chains [data-chain=m1]").innerText)`)
	s.until("numbers and hashes are hidden at first", `document.querySelector("#list table").classList.contains("hide-9") &&
		/^[0-9a-f]{32}$/.test(document.querySelector("#list tbody tr").cells[9].textContent)`)
	s.click("[data-column=Hash]")
	s.until("hashes are shown", `!document.querySelector("#list table").classList.contains("hide-10")`)

	path := s.master.Path("var/cache/salt/master/brine/audit")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(b), "test.arg", "test.arx", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.until("the change is found", `(document.querySelector("#check").click(), await new Promise((r) => setTimeout(r, 500)),
		/broken.*m1[\s\S]*was changed/.test(document.querySelector("#chains").innerText))`)
	s.picture("audit-chain")
	s.fits("the audit")
	out, errs, code := s.master.Run(daemontest.Brine, "salt-run", "audit.verify", "--out=json")
	var got map[string]struct {
		Whole  bool
		Breaks []struct{ What string }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 1 || got["m1"].Whole || len(got["m1"].Breaks) != 1 ||
		!strings.HasSuffix(got["m1"].Breaks[0].What, "was changed") {
		t.Errorf("salt-run: code %d, %v: %s%s", code, err, out, errs)
	}
	s.clean("401")
}
