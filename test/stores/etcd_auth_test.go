package stores

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/cache/drivers"
	"brine/internal/store/returner"
	"brine/test/servertest"
)

const etcdPassword = "p@ss:w/örd"

// admin makes a request to etcd with the authorization in header, if that is not "".
func admin(t *testing.T, s *servertest.Server, method, path, header, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr()+path, bytes.NewBufferString(body))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	a, err := http.DefaultClient.Do(r)
	must(t, err)
	defer a.Body.Close()
	if b, _ := io.ReadAll(a.Body); a.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, a.StatusCode, b)
	}
}

// TestEtcdPasswords: etcd accepts only users with a password. A write by another user does not fail
// permanently. Tokens are lost when the server restarts.
func TestEtcdPasswords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		v2      bool
		prepare func(t *testing.T, s *servertest.Server)
	}{
		"v3": {false, func(t *testing.T, s *servertest.Server) {
			text := base64.StdEncoding.EncodeToString
			for _, u := range []string{`"root", "password": "rooted"`, fmt.Sprintf(`"salt", "password": %q`, etcdPassword)} {
				admin(t, s, "POST", "/v3/auth/user/add", "", `{"name": `+u+`}`)
			}
			for _, r := range []string{"root", "salt"} {
				admin(t, s, "POST", "/v3/auth/role/add", "", fmt.Sprintf(`{"name": %q}`, r))
				admin(t, s, "POST", "/v3/auth/user/grant", "", fmt.Sprintf(`{"user": %q, "role": %[1]q}`, r))
			}
			admin(t, s, "POST", "/v3/auth/role/grant", "", fmt.Sprintf(`{"name": "salt", "perm": {"permType": "READWRITE", "key": %q, "range_end": %q}}`,
				text([]byte("/salt")), text([]byte("/salu"))))
			admin(t, s, "POST", "/v3/auth/enable", "", "{}")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servertest.Etcd(t)
			t.Cleanup(s.Remove)
			c.prepare(t, s)
			pairs := func(user, password string) []any {
				return []any{"etcd.host", s.Host, "etcd.require_v2", c.v2, "etcd.username", user, "etcd.password", password}
			}
			open := func(user, password string) cache.Driver {
				d, err := drivers.Open("etcd", options(pairs(user, password)...), 30*time.Second)
				must(t, err)
				t.Cleanup(func() { d.Close() })
				return d
			}
			d := open("salt", etcdPassword)
			exchange(t, d)
			for _, who := range [][2]string{{"salt", "wrong"}, {"nobody", etcdPassword}, {"", ""}} {
				if err := open(who[0], who[1]).Store(t.Context(), "minions/m1", "data", pack(t, 1)); salt.KindOf(err) != salt.Unavailable || err == nil {
					t.Errorf("%q: %v", who, err) // after a permanent failure the data would be dropped
				} else if strings.Contains(err.Error(), etcdPassword) {
					t.Error("the password is told:", err)
				} else {
					t.Log(err)
				}
			}
			r, err := returner.Open("etcd", returner.Config{Source: options(pairs("salt", etcdPassword)...), Timeout: 30 * time.Second, Keep: time.Hour})
			must(t, err)
			t.Cleanup(func() { r.Close() })
			keepsJobs(t, r)

			s.Stop()
			must(t, s.Start())
			exchange(t, d)
			must(t, r.Return(t.Context(), value.DictOf("jid", "20261122010204000000", "id", "m2", "fun", "test.ping", "return", true)))
		})
	}
}
