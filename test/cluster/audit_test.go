package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

type auditRow struct {
	Time, User, Fun, Result, Master, Problem string
}

// TestAuditOfAllMasters: one query at any of three masters returns the requests to all, newest
// first, within the limit and by the filters; through the API with the permission alone. A master
// that was killed, and one that does not answer, are named.
func TestAuditOfAllMasters(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "")
	one, two, three := a.masters[0], a.masters[1], a.masters[2]
	two.Write("master", two.Read("master")+fmt.Sprintf("sharedsecret: s3cret\nexternal_auth:\n  sharedsecret:\n    carol: ['@runner']\n"+
		"    dave: [test.ping]\nnetapi_enable_clients: [runner]\nrest_cherrypy: {host: %s, port: 28000, disable_ssl: true}\n", two.Host))
	a.start()
	a.equal(one, 3, map[string]int{"peer": 3})
	for i, m := range []*node{three, one, two, three, one, two} {
		if out, errs, code := m.Run(brine, "salt-run", "test.arg", fmt.Sprint(i)); code != 0 {
			t.Fatal(out, errs)
		}
	}
	rows := func(m *node, wantCode int, args ...string) (rows []auditRow) {
		t.Helper()
		out, errs, code := m.Run(brine, "salt-run", append([]string{"--out=json", "audit.list", "fun=test.*"}, args...)...)
		if err := json.Unmarshal([]byte(out), &rows); err != nil || code != wantCode {
			t.Fatalf("%v, code %d: %s%s", err, code, out, errs)
		}
		return rows
	}
	masters := func(rows []auditRow) (ids []string) {
		if !slices.IsSortedFunc(rows, func(x, y auditRow) int { return strings.Compare(y.Time, x.Time) }) {
			t.Errorf("not the newest first: %+v", rows)
		}
		for _, r := range rows {
			ids = append(ids, r.Master)
		}
		return ids
	}
	for _, m := range a.masters {
		if got, want := masters(rows(m, 0)), []string{two.Name, one.Name, three.Name, two.Name, one.Name, three.Name}; !slices.Equal(got, want) {
			t.Errorf("%s shows requests to %v, not %v", m.Name, got, want)
		}
	}
	if got, want := masters(rows(one, 0, "limit=4")), []string{two.Name, one.Name, three.Name, two.Name}; !slices.Equal(got, want) {
		t.Errorf("with a limit it shows requests to %v, not %v", got, want)
	}
	if got := rows(one, 0, "user=nobody"); len(got) != 0 {
		t.Errorf("requests of a user who made none: %+v", got)
	}
	if got := rows(one, 0, "here=True"); len(got) != 2 {
		t.Errorf("requests to one master: %+v", got)
	}

	chains := func(m *node, wantCode int) (chains map[string]struct {
		Whole   bool
		Records int
		Problem string
	}) {
		t.Helper()
		out, errs, code := m.Run(brine, "salt-run", "--out=json", "audit.verify")
		if err := json.Unmarshal([]byte(out), &chains); err != nil || code != wantCode || len(chains) != 3 {
			t.Fatalf("%v, code %d: %s%s", err, code, out, errs)
		}
		return chains
	}
	for id, c := range chains(one, 0) {
		if !c.Whole || c.Records < 2 {
			t.Errorf("the chain of %s: %+v", id, c)
		}
	}

	daemontest.NewAPI(two).Launch()
	get := func(user string) (int, []auditRow) {
		t.Helper()
		send := func(method, path, body, token string) (int, []byte) {
			req, _ := http.NewRequest(method, fmt.Sprintf("http://%s:28000%s", two.Host, path), strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json")
			req.Header.Set("X-Auth-Token", token)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return 0, nil
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			return resp.StatusCode, b
		}
		var login struct{ Return []struct{ Token string } }
		eventually.Nil(t, soon, "the API answers", func() error {
			status, b := send("POST", "/login", `{"username":"`+user+`","password":"s3cret","eauth":"sharedsecret"}`, "")
			if json.Unmarshal(b, &login); len(login.Return) != 1 {
				return fmt.Errorf("%d %s", status, b)
			}
			return nil
		})
		status, b := send("GET", "/v1/audit?fun=test.*", "", login.Return[0].Token)
		var rows []auditRow
		if err := json.Unmarshal(b, &rows); err != nil {
			t.Logf("%d %s", status, b)
		}
		return status, rows
	}
	if status, got := get("carol"); status != 200 || len(got) != 6 {
		t.Errorf("by the API: %d %+v", status, got)
	}
	if status, got := get("dave"); status != 403 || len(got) != 0 {
		t.Errorf("by the API, without permission: %d %+v", status, got)
	}

	three.Kill()
	eventually.Nil(t, soon, "the dead master is named", func() error {
		got := rows(two, 1)
		if got[0].Master != three.Name || got[0].Result != "no answer" || got[0].Problem == "" || len(got) != 5 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	if status, got := get("carol"); status != 200 || len(got) != 5 || got[0].Master != three.Name || got[0].Problem == "" {
		t.Errorf("by the API, with a dead master: %d %+v", status, got)
	}
	if got := rows(two, 0, "here=True"); len(got) != 2 {
		t.Errorf("requests to one master: %+v", got)
	}
	if got := chains(two, 1); got[three.Name].Problem == "" || !got[one.Name].Whole {
		t.Errorf("the chains with a dead master: %+v", got)
	}
	three.Start()
	eventually.Nil(t, soon, "all answer again", func() error {
		if status, got := get("carol"); status != 200 || len(got) != 6 {
			return errors.New(fmt.Sprint(status, got))
		}
		return nil
	})
}
