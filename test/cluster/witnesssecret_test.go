package cluster

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
)

// ownSecret configures a witness with the witness secret instead of the joining secret.
func ownSecret(t *testing.T, w, master *node) {
	t.Helper()
	out, errs, code := master.Run(brine, "cluster", "witness-secret")
	if !regexp.MustCompile(`^cluster_witness_secret: witness-[0-9a-f]{64}\n$`).MatchString(out) || code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	w.Write("witness", strings.Replace(w.Read("witness"), "cluster_secret: "+secret+"\n", out, 1))
}

// cannotJoin tries to join as a master with each secret on the disk of a witness.
func cannotJoin(t *testing.T, a *apart, w *node) {
	t.Helper()
	masters := a.masters
	defer func() { a.masters = masters }()
	var known struct{ Secret string }
	must(t, json.Unmarshal([]byte(w.Read("state/known.json")), &known))
	_, configured, ok := strings.Cut(w.Read("witness"), "cluster_witness_secret: ")
	configured, _, _ = strings.Cut(configured, "\n")
	if !ok || !strings.HasPrefix(known.Secret, "witness-") {
		t.Fatalf("it knows %q, and has %q in its configuration", known.Secret, configured)
	}
	for _, s := range []string{known.Secret, configured} {
		evil := a.add(daemontest.Host(), masters[0].Host)
		// If the fingerprint is configured, any secret may be tried.
		evil.Write("master", strings.Replace(evil.Read("master"), secret, s, 1)+
			fmt.Sprintf("cluster_pub_fingerprint: %x\n", sha256.Sum256([]byte(masters[0].Read("cluster/cluster.pub")))))
		evil.Launch()
		if code := evil.Wait(60 * time.Second); code == 0 || !strings.Contains(evil.Log(), "does not know cluster_secret") {
			t.Errorf("with the secret of a witness: exit code %d\n%s", code, evil.Log())
		}
	}
}

// TestWitnessCannotJoin: an attacker with the whole disk of a witness cannot join as a master,
// neither before nor after the secret is replaced.
func TestWitnessCannotJoin(t *testing.T) {
	t.Parallel()
	a, w := withWitness(t, "auto_accept: true\n")
	a.masters[0].Launch()
	a.masters[0].Await()
	ownSecret(t, w, a.masters[0])
	w.Launch()
	a.masters[1].Launch()
	a.masters[1].Await()
	witnessIs(t, "it has the secret", w, true, true, a.masters...)
	holder(t, "at first", 0, a.masters...)
	have, late := rotated(t, a.masters[0])
	if len(have) != 3 || len(late) > 0 {
		t.Errorf("have the new secret: %v, and will: %v", have, late)
	}
	cannotJoin(t, a, w)
}

// TestWitnessUpgradeToOwnSecret: masters and a witness of a version in which witnesses have the
// joining secret (BRINE_PREVIOUS) are upgraded in either order, after the secret was replaced. The
// witness always votes, and in the end no longer has the joining secret.
func TestWitnessUpgradeToOwnSecret(t *testing.T) {
	t.Parallel()
	old := os.Getenv("BRINE_PREVIOUS")
	if old == "" {
		t.Skip("BRINE_PREVIOUS does not name the program of a version in which witnesses have the secret by which masters join")
	}
	for _, first := range []string{"masters", "witness"} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			within := []string{"sh", "-c", `shift; exec "` + old + `" "$@"`, "sh"}
			a, w := withWitness(t, "auto_accept: true\n")
			for _, n := range append([]*node{w}, a.masters...) {
				n.Within = within
			}
			w.Launch()
			a.start()
			votes(t, w, a.masters...)
			rotated(t, a.masters[0])
			renew := func(n *node) {
				n.Signal(syscall.SIGTERM)
				n.Wait(60 * time.Second)
				n.Within = nil
				n.Launch()
				if n != w {
					n.Await()
				}
				votes(t, w, a.masters...)
			}
			if first == "witness" {
				renew(w)
			}
			for _, m := range a.masters {
				renew(m)
			}
			if first == "masters" {
				renew(w)
			}
			witnessIs(t, "it has the secret", w, true, true, a.masters...)
			have, late := rotated(t, a.masters[1])
			if len(have) != 3 || len(late) > 0 {
				t.Errorf("have the new secret: %v, and will: %v", have, late)
			}
			ownSecret(t, w, a.masters[0])
			renew(w)
			witnessIs(t, "it has the secret", w, true, true, a.masters...)
			cannotJoin(t, a, w)
		})
	}
}
