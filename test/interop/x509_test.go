package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestCertificatesByOtherMinions: a minion signs certificates for others, of both kinds, as far as
// its signing policies allow.
func TestCertificatesByOtherMinions(t *testing.T) {
	for _, p := range []struct{ ca, leaf kind }{{brine, brine}, {brine, stock}, {stock, brine}} {
		t.Run(fmt.Sprintf("%s-ca/%s-leaf", p.ca, p.leaf), func(t *testing.T) {
			if p.ca == stock || p.leaf == stock {
				stockTree(t)
			}
			testRemoteSigning(t, p.ca, p.leaf)
		})
	}
}

func testRemoteSigning(t *testing.T, ca, leaf kind) {
	host, dir := daemontest.Host(), t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	master := newMaster(t, brine, "boss", host, "peer: {'leaf': [x509.sign_remote_certificate]}\npeer_run: {'ca': [match.compound_matches]}\n"+
		"file_roots: {base: ["+dir+"]}\n")
	master.Start()
	policy := func(name, minions string) string {
		return fmt.Sprintf("  %s: {minions: '%s', signing_private_key: %s, signing_cert: %s, keyUsage: 'critical keyEncipherment', C: DE, days_valid: 100}\n",
			name, minions, path("ca.key"), path("ca.crt"))
	}
	const features = "features: {x509_v2: true}\n"
	newMinion(t, ca, "ca", []string{host}, features+"x509_signing_policies:\n"+policy("www", "l*")+policy("compound", "G@id:leaf")+
		policy("none", "other*")).Start()
	newMinion(t, leaf, "leaf", []string{host}, features).Start()
	master.Accept("ca", "leaf")
	eventually.Nil(t, stockLimit, "the minions answer", func() error { return master.PingAll(brine, "ca", "leaf") })
	run := func(id string, args ...string) string {
		t.Helper()
		rets, err := master.SaltJSON(brine, append([]string{"-t", "60", id}, args...)...)
		out, _ := json.Marshal(rets[id])
		if err != nil && rets[id] == nil {
			t.Fatalf("%q: %v", args, err)
		}
		return string(out)
	}
	written := func(out string) {
		t.Helper()
		if !strings.HasPrefix(out, `"PEM written to `) {
			t.Fatal(out)
		}
	}
	written(run("ca", "x509.create_private_key", "path="+path("ca.key")))
	written(run("ca", "x509.create_certificate", "signing_private_key="+path("ca.key"), "CN=theca", "basicConstraints=critical, CA:TRUE",
		"subjectKeyIdentifier=hash", "path="+path("ca.crt")))
	written(run("leaf", "x509.create_private_key", "path="+path("leaf.key")))
	create := func(policy string, more ...string) string {
		return run("leaf", append([]string{"x509.create_certificate", "ca_server=ca", "signing_policy=" + policy, "private_key=" + path("leaf.key"), "CN=www",
			"keyUsage=cRLSign", "path=" + path(policy+".crt")}, more...)...)
	}
	for _, name := range []string{"www", "compound"} {
		written(create(name))
		for _, id := range []string{"leaf", "ca"} { // both kinds read it
			got := run(id, "x509.read_certificate", path(name+".crt"))
			for _, want := range []string{`"subject_str":"CN=www,C=DE"`, `"issuer_str":"CN=theca"`, `"cRLSign":false`, `"keyEncipherment":true`} {
				if !strings.Contains(got, want) {
					t.Errorf("%s, read by %s: no %s in %s", name, id, want, got)
				}
			}
			if got := run(id, "x509.verify_signature", path(name+".crt"), path("ca.crt")); got != "true" {
				t.Errorf("%s, checked by %s: %s", name, id, got)
			}
		}
	}
	if got := run("leaf", "x509.verify_private_key", path("leaf.key"), path("www.crt")); got != "true" {
		t.Error(got)
	}
	for name, want := range map[string]string{"none": "minion not permitted to use specified signing policy",
		"absent": "signing_policy must be specified and defined on signing minion"} {
		if got := create(name); !strings.Contains(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if ca == brine { // stock minions sign the data in the request, and write copies as configured
		written(create("www", "copypath="+dir, "signing_private_key="+path("leaf.key")))
		if found, err := filepath.Glob(filepath.Join(dir, "*.crt")); err != nil || len(found) != 3 {
			t.Errorf("%v %v", found, err)
		}
		got := run("leaf", "publish.publish", "ca", "x509.sign_remote_certificate", "[www, {public_key: "+path("leaf.key")+"}]")
		if !strings.Contains(got, "Could not load provided source") {
			t.Errorf("a request names a file of the CA: %s", got)
		}
	}
	state := fmt.Sprintf("%s:\n  x509.certificate_managed: [{ca_server: ca}, {signing_policy: www}, {private_key: %s}, {CN: st}]\n",
		path("st.crt"), path("leaf.key"))
	if err := os.WriteFile(path("st.sls"), []byte(state), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"The certificate has been created", "The certificate is in the correct state"} {
		if got := run("leaf", "state.apply", "st"); !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}
