package metrics

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/daemons/api"
	"brine/internal/daemons/master"
	"brine/internal/daemons/minion"
	"brine/internal/ha/federation"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/gittest"
)

// certificate writes a certificate of an address and its key.
func certificate(t *testing.T, dir, host string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.ParseIP(host)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestDaemons changes each metric of a master, a minion and salt-api.
func TestDaemons(t *testing.T) {
	host, two, three := daemontest.Host(), daemontest.Host(), daemontest.Host()
	dir := daemontest.ShortDir(t)
	cert, key := certificate(t, dir, host)
	repo := filepath.Join(dir, "repo")
	gittest.Write(t, repo, map[string]string{"from-git": "x\n"})
	gittest.Run(t, repo, "init", "-q", "-b", "master")
	gittest.Run(t, repo, "add", ".")
	gittest.Run(t, repo, "commit", "-q", "-m", "x")
	gittest.Write(t, dir, map[string]string{"files/good.sls": "fine:\n  test.succeed_without_changes\n", "files/bad.sls": "not:\n  test.fail_without_changes\n"})
	m := daemontest.NewMaster(t, brine, "master", host, fmt.Sprintf(`transport: tcp
ssl: {certfile: %[1]s, keyfile: %[2]s, cert_reqs: CERT_NONE}
metrics_address: %[3]s:%[4]d
api_metrics_address: %[5]s:%[4]d
file_roots: {base: [%[6]s/files]}
fileserver_backend: [roots, gitfs]
gitfs_remotes: ['file://%[6]s/repo']
ext_pillar: [{cmd_yaml: "while test -e %[6]s/slow; do sleep 0.1; done; echo {}"}]
ext_job_cache: redis
redis.host: 127.0.0.1
redis.port: 1
event_publisher_pub_hwm: 1
rest_cherrypy: {port: %[7]d, host: %[3]s, ssl_crt: %[1]s, ssl_key: %[2]s}
`, cert, key, host, port, two, dir, port+1)).Start()
	w := daemontest.NewMinion(t, brine, "w1", []string{host}, fmt.Sprintf(`transport: tcp
ssl: {ca_certs: %[1]s, certfile: %[1]s, keyfile: %[2]s}
metrics_address: %[3]s:%[4]d
return_retry_timer: 1
return_retry_timer_max: 1
redis.host: 127.0.0.1
redis.port: 1
`, cert, key, three, port))
	atMaster, atMinion, atAPI := reader(host), reader(three), reader(two)
	atMaster.health(t, "a master", "/readyz", 200, "ok")

	// A minion with the id of another one, and one whose key is pending.
	waiting := daemontest.NewMinion(t, brine, "w2", []string{host}, fmt.Sprintf("transport: tcp\nssl: {ca_certs: %s}\n", cert))
	impostor := daemontest.NewMinion(t, brine, "w1", []string{host}, fmt.Sprintf("transport: tcp\nssl: {ca_certs: %s}\n", cert))
	slow := func(on bool) {
		var err error
		if path := filepath.Join(dir, "slow"); on {
			err = os.WriteFile(path, nil, 0o600)
		} else {
			err = os.Remove(path)
		}
		if err != nil {
			t.Error(err)
		}
	}
	salt := func(args ...string) func() {
		return func() { t.Helper(); m.Run(brine, "salt", append([]string{"-t", "20"}, args...)...) }
	}
	rows := []row{
		{`brine_certificate_expiry_timestamp_seconds{certificate="ssl"}`, nil, later},
		{`brine_git_fetch_timestamp_seconds{backend="gitfs",remote="file://` + dir + `/repo"}`, nil, recent},
		{`brine_master_sign_ins_total{result="pending"}`, func() { w.Start() }, nil},
		{`brine_master_minions{state="pending"}`, nil, is(1)},
		{`salt_health_minions_total`, run(t, m, "salt-key", "-y", "-a", "w1"), nil},
		{`brine_master_minions{state="accepted"}`, nil, is(1)},
		{`brine_master_sign_ins_total{result="accepted"}`, nil, is(1)},
		{`brine_master_minions{state="connected"}`, nil, is(1)},
		{`brine_master_minions{state="pending"}`, func() { waiting.Start() }, is(1)},
		{`brine_master_minions{state="rejected"}`, run(t, m, "salt-key", "-y", "-r", "w2"), is(1)},
		{`brine_master_sign_ins_total{result="rejected"}`, nil, positive},
		{`brine_master_minions{state="denied"}`, func() { impostor.Start() }, is(1)},
		{`brine_master_sign_ins_total{result="denied"}`, func() {}, positive},
		{`salt_new_job_total{function="test.ping",state=""}`, func() { impostor.Kill(); waiting.Kill(); pings(t, m, "w1") }, nil},
		{`salt_expected_responses_total{function="test.ping",state=""}`, salt("w1", "test.ping"), nil},
		{`salt_function_responses_total{function="test.ping",state="",success="true"}`, salt("w1", "test.ping"), nil},
		{`salt_responses_total{success="true"}`, salt("w1", "test.ping"), nil},
		{`salt_responses_total{success="false"}`, salt("w1", "test.nosuch"), nil},
		{`salt_function_responses_total{function="test.nosuch",state="",success="false"}`, nil, is(1)},
		{`brine_master_returns_total{result="stored"}`, salt("w1", "test.ping"), nil},
		{`brine_master_state_runs_total{success="true"}`, salt("w1", "state.apply", "good"), nil},
		{`salt_function_responses_total{function="state.apply",state="good",success="true"}`, nil, is(1)},
		{`brine_master_state_runs_total{success="false"}`, salt("w1", "state.apply", "bad"), nil},
		{`salt_function_responses_total{function="state.apply",state="bad",success="false"}`, nil, is(1)},
		{`salt_scheduled_job_return_total{function="test.ping",state="",success="true"}`,
			salt("w1", "schedule.add", "often", "function=test.ping", "seconds=1"), nil},
		{`brine_events_total`, salt("w1", "schedule.delete", "often"), nil},
		{`brine_master_request_duration_seconds_count{kind="sign_in"}`, func() { waiting.Start() }, nil},
		{`brine_master_request_duration_seconds_count{kind="return"}`, salt("w1", "test.ping"), nil},
		{`brine_master_request_duration_seconds_count{kind="pillar"}`, salt("w1", "pillar.items"), nil},
		{`brine_master_request_duration_seconds_count{kind="file"}`, salt("w1", "cp.list_master"), nil},
		{`brine_master_request_duration_seconds_count{kind="event"}`, salt("w1", "event.send", "site/x"), nil},
		{`brine_master_request_duration_seconds_count{kind="other"}`, salt("w1", "test.ping"), nil},
		{`brine_master_requests_in_progress{by="minions"}`, func() { slow(true); m.Run(brine, "salt", "--async", "w1", "saltutil.refresh_pillar") }, is(1)},
		{`brine_master_slow_requests_total{kind="pillar"}`, func() { time.Sleep(2 * time.Second); slow(false) }, positive},
		{`brine_master_requests_limit{by="minions"}`, nil, is(64)},
		{`brine_returner_up{returner="redis"}`, nil, is(0)},
		{`brine_returner_queued{returner="redis"}`, salt("w1", "test.ping"), nil},
		{`brine_events_dropped_total{reader="program"}`, func() { readSlowly(t, m) }, nil},
	}
	atMaster.change(t, rows)
	now, err := atMaster.page()
	if err != nil {
		t.Fatal(err)
	}
	if slow, all := now[`brine_master_slow_requests_total{kind="file"}`], now[`brine_master_request_duration_seconds_count{kind="file"}`]; slow >= all {
		t.Errorf("%v of %v requests of files are slow", slow, all)
	}
	wrote := now.families()

	minionRows := []row{
		{`brine_certificate_expiry_timestamp_seconds{certificate="ssl"}`, nil, later},
		{`brine_minion_master_connected{master="` + host + `",role="active"}`, nil, is(1)},
		{`brine_minion_jobs_total{success="true"}`, salt("w1", "test.ping"), nil},
		{`brine_minion_jobs_total{success="false"}`, salt("w1", "test.nosuch"), nil},
		{`brine_minion_state_runs_total{success="true"}`, salt("w1", "state.apply", "good"), nil},
		{`brine_minion_state_runs_total{success="false"}`, salt("w1", "state.apply", "bad"), nil},
		{`brine_minion_jobs_running`, salt("--async", "w1", "test.sleep", "6"), nil},
		{`brine_events_total`, salt("w1", "event.fire", "{}", "site/x"), nil},
		{`brine_returner_queued{returner="redis"}`, salt("--return", "redis", "w1", "test.ping"), nil},
		{`brine_returner_up{returner="redis"}`, nil, is(0)},
		// The next job ends while its master is dead.
		{`brine_minion_jobs_running`, nil, is(0)},
		{`brine_minion_jobs_running`, salt("--async", "w1", "test.sleep", "8"), positive},
		{`brine_minion_outbox_returns`, m.Kill, nil},
		{`brine_minion_outbox_bytes`, nil, positive},
		{`brine_minion_outbox_messages{master="` + host + `"}`, nil, positive},
		{`brine_minion_master_connected{master="` + host + `",role="active"}`, nil, is(0)},
	}
	atMinion.health(t, "a minion with its master", "/readyz", 200, "ok")
	atMinion.change(t, minionRows)
	atMinion.health(t, "a minion without a master", "/readyz", 503, "connected to no master: "+host)
	atMinion.health(t, "a minion without a master", "/livez", 200, "ok")
	ofMinion, err := atMinion.page()
	if err != nil {
		t.Fatal(err)
	}
	complete(t, minion.Families(), ofMinion.families(), minionRows, map[string]string{
		"brine_minion_outbox_failing": "TestFailingJournal in internal/daemons/minion/outbox",
		"brine_events_dropped_total":  "TestMissedEventsAreCounted in internal/net/event",
		"brine_trace_spans_total":     "TestTraces", "brine_trace_spans_dropped_total": "TestTraces"})
	m.Start()
	atMinion.health(t, "the master is back", "/readyz", 200, "ok")
	atMinion.change(t, []row{{`brine_minion_outbox_returns`, nil, is(0)}})

	// Jobs for an unreachable minion.
	queued := []row{
		{`brine_master_minions{state="connected"}`, func() { pings(t, m, "w1"); w.Kill() }, is(0)},
		{`brine_master_queued_jobs`, salt("--async", "w1", "test.ping"), nil},
		{`brine_master_queued_bytes`, nil, positive},
	}
	atMaster.change(t, queued)
	inCluster, inCopies := "TestCluster", "TestLostCopies in test/cluster"
	inOthers := map[string]string{"brine_cluster_peer_up": inCluster, "brine_cluster_behind_changes": inCluster,
		"brine_cluster_leads": inCluster, "brine_cluster_lease_token": inCluster, "brine_cluster_differences": inCluster,
		"brine_cluster_returns_missing": inCopies, "brine_cluster_returns_few_copies": inCopies, "brine_cluster_returns_few_copies_oldest_seconds": inCopies,
		"brine_trace_spans_total": "TestTraces", "brine_trace_spans_dropped_total": "TestTraces"}
	for _, f := range federation.Families() {
		inOthers[f.Name] = "TestSites in test/federation"
	}
	complete(t, master.Families(), wrote, append(rows, queued...), inOthers)

	a := daemontest.NewAPI(m).Launch()
	anyTLS := *client
	anyTLS.Transport = &http.Transport{DisableKeepAlives: true, TLSClientConfig: anyCertificate}
	ask := func(path string) func() {
		return func() {
			eventually.Nil(t, soon, "the API answers", func() error {
				rep, err := anyTLS.Get(fmt.Sprintf("https://%s:%d%s", host, port+1, path))
				if err == nil {
					rep.Body.Close()
				}
				return err
			})
		}
	}
	atAPI.health(t, "salt-api with its master", "/readyz", 200, "ok")
	var open, half net.Conn
	apiRows := []row{
		{`brine_certificate_expiry_timestamp_seconds{certificate="ssl"}`, nil, later},
		{`brine_api_uptime_seconds`, func() {}, nil},
		{`brine_api_requests_total{status="200"}`, ask("/health"), nil},
		{`brine_api_requests_total{status="404"}`, ask("/nosuch"), nil},
		{`brine_api_sent_bytes_total`, ask("/health"), nil},
		{`brine_api_request_duration_seconds_count`, ask("/health"), nil},
		{`brine_api_connections`, nil, is(0)},
		{`brine_api_connections`, func() {
			var err error
			if open, err = net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port+1))); err != nil {
				t.Fatal(err)
			}
		}, is(1)},
		{`brine_api_connections`, func() { open.Close() }, is(0)},
		{`brine_api_requests_active`, func() { half = halfRequest(t, net.JoinHostPort(host, strconv.Itoa(port+1))) }, is(1)},
		{`brine_api_requests_active`, func() { half.Close() }, is(0)},
		{`brine_api_master_up`, nil, is(1)},
		{`brine_api_master_up`, m.Kill, is(0)},
	}
	atAPI.change(t, apiRows)
	atAPI.health(t, "salt-api without a master", "/readyz", 503, "the master does not answer")
	atAPI.health(t, "salt-api without a master", "/livez", 200, "ok")
	ofAPI, err := atAPI.page()
	if err != nil {
		t.Fatal(err)
	}
	admitted := "TestConnectionsOfUsersAreBounded in internal/daemons/api"
	complete(t, api.Families(), ofAPI.families(), apiRows, map[string]string{
		"brine_api_connections_refused_total": admitted, "brine_api_connections_displaced_total": admitted})
	a.Signal(syscall.SIGTERM)
}

// halfRequest sends a request without its body.
func halfRequest(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", addr, anyCertificate)
	if err == nil {
		_, err = c.Write([]byte("POST /login HTTP/1.1\r\nHost: test\r\nAccept: application/json\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// readSlowly reads events of a master so slowly that some are missed.
func readSlowly(t *testing.T, m *node) {
	t.Helper()
	ctx := t.Context() // the reader's connection stays open: the master counts missed events when it writes again
	at := event.MasterOptions{Options: event.Options{IPCMode: "ipc"}, SockDir: m.Path("var/run/salt/master")}.Sockets()
	r, err := event.Dial(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	data := value.DictOf("data", strings.Repeat("x", 500_000))
	for range 100 {
		if err := event.Push(ctx, at, "site/large", data); err != nil {
			t.Fatal(err)
		}
	}
	for range r.Events("site/") {
		break // the master continues with the remaining events
	}
}

// TestFullDisk: a master that cannot write its job store is live but not ready.
func TestFullDisk(t *testing.T) {
	host := daemontest.Host()
	m := daemontest.NewMaster(t, brine, "master", host, fmt.Sprintf("metrics_address: %s:%d\n", host, port))
	disk := daemontest.NewDisk(t, m.Path("var/cache/salt/master"), "24m")
	m.Start()
	at := reader(host)
	at.health(t, "with space", "/readyz", 200, "ok")
	disk.Fill()
	at.health(t, "on a full disk", "/readyz", 503, "the master cannot store jobs")
	at.health(t, "on a full disk", "/livez", 200, "ok")
	disk.Free()
	at.health(t, "with space again", "/readyz", 200, "ok")
}

// TestAddresses: an unusable address is reported before the start, and one without a host is on
// loopback.
func TestAddresses(t *testing.T) {
	host := daemontest.Host()
	m := daemontest.NewMaster(t, brine, "master", host, "metrics_address: 9175\n")
	for _, args := range [][]string{{"salt-master", "--check-config"}, {"salt-master"}, {"salt-api", "--check-config"}} {
		if out, errs, code := m.Run(brine, args[0], args[1:]...); code == 0 || !strings.Contains(out+errs, "metrics_address") {
			t.Errorf("%v: exit code %d: %s%s", args, code, out, errs)
		}
	}
	m.Write("master", m.Read("master")+"rest_cherrypy: {port: 1, disable_ssl: True}\n")
	m.Write("master", strings.Replace(m.Read("master"), "metrics_address: 9175", "api_metrics_address: 9175", 1))
	if out, errs, code := m.Run(brine, "salt-api", "--check-config"); code == 0 || !strings.Contains(out+errs, "api_metrics_address") {
		t.Errorf("salt-api: exit code %d: %s%s", code, out, errs)
	}
	w := daemontest.NewMaster(t, brine, "witness", host, "")
	w.Write("witness", fmt.Sprintf("metrics_address: nosuch\nid: a\ncluster_id: test\ncluster_secret: %s\ncluster_voters: [a, b, c]\n", secret))
	if out, errs, code := w.Run(brine, "witness"); code == 0 || !strings.Contains(out+errs, "metrics_address") {
		t.Errorf("witness: exit code %d: %s%s", code, out, errs)
	}
}
