package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestStockAPI: Salt's own salt-api serves over a Brine master.
func TestStockAPI(t *testing.T) {
	stockTree(t)
	t.Parallel()
	m := newMaster(t, brine, "boss", daemontest.Host(),
		"auto_accept: true\nnetapi_enable_clients: [local, runner, wheel]\nexternal_auth: {auto: {'*': ['.*', '@runner', '@wheel']}}\n")
	m.Write("api/master", m.Read("master")+fmt.Sprintf("rest_cherrypy: {host: %s, port: 24580, disable_ssl: true}\napi_logfile: %s\npidfile: %s\n", m.Host,
		m.Path("api.log"), m.Path("api.pid")))
	m.Start()
	newMinion(t, brine, "m1", []string{m.Host}, "").Start()
	eventually.Nil(t, stockLimit, "the minion answers", func() error { return m.PingAll(brine, "m1") })

	c := daemontest.Stock.Command(context.Background(), t, "salt-api", "-c", m.Path("api"))
	out, err := os.Create(m.Path("api.out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c.Stdout, c.Stderr = out, out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
		if t.Failed() {
			t.Log(m.Read("api.out"))
		}
	})
	base, token := fmt.Sprintf("http://%s:24580", m.Host), ""
	ask := func(path, body string) (string, error) {
		method := http.MethodGet
		if body != "" {
			method = http.MethodPost
		}
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			return "", err
		}
		req.Header.Set("Accept", "application/json")
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Auth-Token", token)
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err == nil && r.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", r.Status, b)
		}
		return string(b), err
	}
	eventually.Nil(t, stockLimit, "salt-api lets ops in", func() error {
		text, err := ask("/login", `{"username": "ops", "password": "x", "eauth": "auto"}`)
		if err != nil {
			return err
		}
		var login struct {
			Return []struct{ Token string }
		}
		if err := json.Unmarshal([]byte(text), &login); err != nil || len(login.Return) != 1 {
			return fmt.Errorf("%v: %s", err, text)
		}
		token = login.Return[0].Token
		return nil
	})
	for _, q := range []struct{ path, body, want string }{
		{"/", `[{"client": "local", "tgt": "*", "fun": "test.ping"}]`, `{"return": [{"m1": true}]}`},
		{"/", `[{"client": "runner", "fun": "manage.up"}]`, `{"return": [["m1"]]}`},
		{"/", `[{"client": "wheel", "fun": "key.list_all"}]`, `"minions": ["m1"]`},
		{"/minions/m1", "", `"id": "m1"`},
	} {
		if text, err := ask(q.path, q.body); err != nil || !strings.Contains(text, q.want) {
			t.Errorf("%s %s: %v %.500s", q.path, q.body, err, text)
		}
	}
}
