package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/ha/copies"
	"brine/internal/store/job"
	"brine/internal/store/oplog"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// TestCopiesByAPI: with more copies than masters, all masters store all returns, and the doctor says so. With two copies on three masters,
// salt-api of the third one shows a return that both others store. While they are down it answers with the names of the masters that have
// to store it: 503 for the return, and for a comparison with it; a number of unavailable returns for the job.
func TestCopiesByAPI(t *testing.T) {
	tools.Slow(t)
	t.Parallel()
	a := newApart(t, 3, "auto_accept: true\n")
	one, two, third := a.masters[0], a.masters[1], a.masters[2]
	copiesAre := func(n int) {
		for _, m := range a.masters {
			text, _, _ := strings.Cut(m.Read("master"), "cluster_return_copies")
			m.Write("master", text+fmt.Sprintf("cluster_return_copies: %d\n", n))
		}
	}
	third.Write("master", third.Read("master")+fmt.Sprintf(`sharedsecret: s3cret
netapi_enable_clients: [runner]
external_auth: {sharedsecret: {carol: ['.*', '@runner', '@jobs']}}
rest_cherrypy: {host: %s, port: 28000, disable_ssl: true}
`, third.Host))
	copiesAre(7)
	a.start()
	daemontest.NewMinion(t, brine, "m0", []string{one.Host}, "").Start()
	eventually.Nil(t, soon, "it answers", func() error { return one.PingAll(brine, "m0") })
	awaitCopies(t, two, 3, "all")
	finds(t, third, "copies", "", "cluster_return_copies is 7, and the cluster has 3 masters")
	w := newWords(t, 1)
	if err := w.publish(one); err != nil {
		t.Fatal(err)
	}
	w.all(one, third)
	early := w.ids()[0]
	one.Kill()
	two.Kill()
	w.still("both others are down", "", third)
	copiesAre(2)
	third.Signal(syscall.SIGTERM)
	third.Wait(time.Minute)
	a.start()
	awaitCopies(t, two, 3, "2 of 3")
	eventually.Nil(t, soon, "it answers", func() error { return one.PingAll(brine, "m0") })

	var members []copies.Member
	for _, m := range a.masters {
		members = append(members, copies.Member{ID: m.Name, Known: true, Copies: 2, Up: true})
	}
	rule, jid := copies.Agree(members, time.Now()), ""
	for range 60 {
		if jid != "" {
			break
		}
		if err := w.publish(one); err != nil {
			t.Fatal(err)
		}
		for _, id := range w.ids()[1:] {
			if !rule.Holds(third.Name, job.Place{JID: id, ID: "m0", Receiver: oplog.Mark(one.Name), Issuer: one.Name}) {
				jid = id
			}
		}
	}
	if jid == "" {
		t.Fatal("the third master has to store all returns")
	}

	daemontest.NewAPI(third).Launch()
	url, token := fmt.Sprintf("http://%s:28000", third.Host), ""
	do := func(method, path, body string) (int, string, http.Header) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json")
		req.Header.Set("X-Auth-Token", token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err.Error(), nil
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err.Error(), nil
		}
		return resp.StatusCode, string(b), resp.Header
	}
	eventually.Nil(t, soon, "a login", func() error {
		status, body, header := do("POST", "/login", `{"username":"carol","password":"s3cret","eauth":"sharedsecret"}`)
		if token = header.Get("X-Auth-Token"); token == "" {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	lookup := fmt.Sprintf(`{"client":"runner","fun":"jobs.lookup_jid","jid":"%s"}`, jid)
	paths := []struct {
		method, path, body string
		status             int // when the return is unavailable
	}{
		{"GET", "/v1/jobs/" + jid, "", 200}, {"GET", "/v1/jobs/" + jid + "/m0", "", 503}, {"GET", "/v1/jobs/" + jid + "?against=" + early, "", 503},
		{"POST", "/", lookup, 200}, {"GET", "/jobs/" + jid, "", 200},
	}
	for _, p := range paths {
		eventually.Nil(t, soon, p.path+" has the return", func() error {
			status, body, _ := do(p.method, p.path, p.body)
			if status != 200 || !strings.Contains(body, w.jobs[jid]) {
				return fmt.Errorf("%d %.2000s", status, body)
			}
			return nil
		})
	}
	one.Kill()
	two.Kill()
	for _, p := range paths {
		eventually.Nil(t, soon, p.path+" names the masters", func() error {
			status, body, _ := do(p.method, p.path, p.body)
			if status != p.status || !containsAll(body, "This return is stored on other masters", one.Name+" (unreachable)", two.Name+" (unreachable)") {
				return fmt.Errorf("%d %.2000s", status, body)
			}
			return nil
		})
	}
	counted := func(want int) {
		t.Helper()
		eventually.Nil(t, soon, fmt.Sprintf("%d returns are unavailable", want), func() error {
			status, body, _ := do("GET", "/v1/jobs/"+jid, "")
			var in struct {
				Counts struct{ Returned, Unavailable int }
			}
			if err := json.Unmarshal([]byte(body), &in); err != nil || in.Counts.Returned != 1 || in.Counts.Unavailable != want {
				return fmt.Errorf("%d %.2000s %w", status, body, err)
			}
			return nil
		})
	}
	counted(1)
	if status, body, _ := do("GET", "/v1/jobs/"+jid+"/m9", ""); status != 404 {
		t.Errorf("a return that there is not: %d %.300s", status, body)
	}
	two.Start()
	counted(0)
	eventually.Nil(t, soon, "the return is there", func() error {
		if status, body, _ := do("GET", "/v1/jobs/"+jid+"/m0", ""); status != 200 {
			return errors.New(body)
		}
		return nil
	})
}
