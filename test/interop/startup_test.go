package interop

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestStartupStates: masters of both kinds store and fire the same for the jobs of startup_states
// of minions of both kinds.
func TestStartupStates(t *testing.T) {
	stockTree(t)
	options := map[string]string{
		"highstate": "startup_states: highstate\n",
		"sls":       "startup_states: sls\nsls_list: [one, two]\n",
		"top":       "startup_states: top\ntop_file: other.sls\n",
	}
	functions := map[string]string{"highstate": "state.highstate", "sls": "state.sls", "top": "state.top"}
	kinds := []kind{stock, brine}
	for _, k := range kinds {
		t.Run("master of "+string(k), func(t *testing.T) {
			m := newMaster(t, k, "boss", daemontest.Host(), "auto_accept: true\n")
			m.Write("master", m.Read("master")+"file_roots: {base: ["+m.Path("srv/salt")+"]}\n")
			for file, text := range map[string]string{
				"one.sls": "one:\n  test.nop: []\n", "two.sls": "two:\n  test.nop: []\n",
				"top.sls": "base: {'*': [one]}\n", "other.sls": "base: {'*': [two]}\n",
			} {
				m.Write("srv/salt/"+file, text)
			}
			m.Start()
			heard := m.Tagged("salt/job/")
			for mode, more := range options {
				got := map[kind]string{}
				for _, kk := range kinds {
					id := fmt.Sprintf("%s-%s", mode, kk)
					minion := newMinion(t, kk, id, []string{m.Host}, more).Start()
					eventually.Nil(t, stockLimit, id+" returned", func() error {
						got[kk] = startup(t, m, k, id, functions[mode], heard())
						if got[kk] == "" {
							return fmt.Errorf("no return")
						}
						return nil
					})
					got[kk] = strings.ReplaceAll(got[kk], id, "ID")
					minion.Kill()
				}
				if got[brine] != got[stock] {
					t.Errorf("%s\nbrine %s\nstock %s", mode, got[brine], got[stock])
				}
			}
		})
	}
}

var (
	jidPattern   = regexp.MustCompile(`\b20\d{18}\b`)
	stampPattern = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[\d:.]+"|"\d{4}, \w{3} \d\d [\d:.]+"|"\d\d:\d\d:\d\d\.\d+"`)
	timePattern  = regexp.MustCompile(`"(duration|ts)":[\d.]+`)
)

// startup returns the return event and the job record of the single job that a minion has started,
// without the parts that vary between runs; "" if there is no such job yet.
func startup(t *testing.T, m *node, k kind, id, fun, heard string) string {
	t.Helper()
	var out []string
	jid := ""
	for line := range strings.Lines(heard) {
		tag, data, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if !strings.HasSuffix(tag, "/ret/"+id) {
			continue
		}
		var d map[string]any
		if err := json.Unmarshal([]byte(data), &d); err != nil {
			t.Fatal(err)
		}
		if jid = strings.Split(tag, "/")[2]; d["fun"] != fun {
			t.Errorf("%s: %v", tag, d["fun"])
		}
		out = append(out, "event "+jidPattern.ReplaceAllString(tag, "JID")+" "+sorted(t, d))
	}
	if jid == "" {
		return ""
	}
	for _, runner := range [][]string{{"jobs.list_jobs", "search_target=" + id}, {"jobs.print_job", jid}} {
		text, errs, _ := m.Run(k, "salt-run", append([]string{"--out=json"}, runner...)...)
		var d map[string]any
		if err := json.Unmarshal([]byte(text), &d); err != nil || len(d) != 1 {
			t.Fatal(err, text, errs)
		}
		out = append(out, runner[0]+" "+sorted(t, d))
	}
	return strings.Join(out, "\n")
}

// sorted returns a map as a string without times and job ids.
func sorted(t *testing.T, d map[string]any) string {
	t.Helper()
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	text := timePattern.ReplaceAllString(string(b), `"$1":0`)
	for _, p := range []*regexp.Regexp{jidPattern, stampPattern} {
		text = p.ReplaceAllString(text, "T")
	}
	return text
}
