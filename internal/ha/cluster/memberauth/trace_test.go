package memberauth

import (
	"crypto/x509"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/ha/cluster/clustertest"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

var rewrite = flag.Bool("rewrite", false, "write the traces of testdata again")

// TestTraces runs the conversations in testdata/*.txt. A block is commands, a line of four dashes, and the messages
// and decisions of both ends.
//
//	master ID [name=value ...]  a master with its settings: peers, cluster, version, hash_type, clock, key (number of its key pair), isolated,
//	                            secret, tokens (those in its cachedir), old (a release before refusal codes)
//	forget ID at OTHER          deletes the public key of a master at another one
//	ban ID at OTHER             a member that may not join again
//	copied ID at OTHER          another process is connected there as this master
//	dial A B [tls] [cut]        A connects to B. cut: the answer to the last message is lost
//	replay A B                  sends B A's messages in the last conversation
//	join A B                    A joins at B
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t)
			var got strings.Builder
			for i, block := range strings.Split(strings.TrimSpace(string(b)), "\n\n") {
				if i > 0 {
					got.WriteString("\n")
				}
				input, _, _ := strings.Cut(block, "\n----")
				w.out.Reset()
				for line := range strings.Lines(input) {
					w.command(strings.TrimSpace(line))
				}
				fmt.Fprintf(&got, "%s\n----\n%s", strings.TrimSpace(input), w.out.String())
			}
			if *rewrite {
				if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got.String() != string(b) {
				t.Errorf("got\n%s\nwant\n%s\n(-rewrite replaces the file)", got.String(), b)
			}
		})
	}
}

// world is the masters of a trace.
type world struct {
	t       *testing.T
	out     strings.Builder
	masters map[string]*endpoint
	nonces  int
	said    [][]byte // messages of the dialling end in the last conversation
}

// endpoint is a master, and its knowledge of the others.
type endpoint struct {
	w       *world
	self    Self
	keys    map[string]*crypt.PublicKey
	was     map[string]bool
	banned  map[string]bool
	copied  map[string]bool // ids of masters as which another process is connected
	shares  bool            // it still uses the shared directory that others have left
	secret  string
	offset  time.Duration
	old     bool
	foreign map[string]bool // masters with another cachedir
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newWorld(t *testing.T) *world { return &world{t: t, masters: map[string]*endpoint{}} }

func (w *world) command(line string) {
	f := strings.Fields(line)
	if len(f) < 2 || strings.HasPrefix(line, "#") {
		return
	}
	switch f[0] {
	case "master":
		w.master(f[1], f[2:])
	case "forget":
		delete(w.masters[f[3]].keys, f[1])
	case "ban":
		w.masters[f[3]].banned[f[1]] = true
	case "copied":
		w.masters[f[3]].copied[f[1]] = true
	case "dial":
		flags := strings.Join(f[3:], " ")
		w.dial(w.masters[f[1]], w.masters[f[2]], f[2], strings.Contains(flags, "tls"), strings.Contains(flags, "cut"))
	case "replay":
		w.replay(w.masters[f[2]])
	case "join":
		w.join(w.masters[f[1]], w.masters[f[2]])
	default:
		w.t.Fatalf("unknown command %q", line)
	}
}

func (w *world) master(id string, options []string) {
	pairs, err := clustertest.Keys()
	if err != nil {
		w.t.Fatal(err)
	}
	own := map[string]*crypt.PrivateKey{"a": pairs[0], "b": pairs[1], "c": pairs[2]}[id]
	e := &endpoint{w: w, keys: map[string]*crypt.PublicKey{}, was: map[string]bool{}, banned: map[string]bool{}, copied: map[string]bool{},
		foreign: map[string]bool{}, secret: "the secret of the cluster"}
	facts := Facts{ID: id, Cluster: "main", Peers: []string{"a", "b", "c"}, Key: "k1", HashType: "sha256", Version: "1", Protocol: wire.Protocol,
		Refusals: refusal.Version}
	for _, o := range options {
		name, text, _ := strings.Cut(o, "=")
		switch name {
		case "peers":
			facts.Peers = strings.Split(text, ",")
		case "cluster":
			facts.Cluster = text
		case "version":
			facts.Version = text
		case "hash_type":
			facts.HashType = text
		case "clock":
			e.offset, err = time.ParseDuration(text)
		case "key":
			own = pairs[3]
		case "isolated":
			facts.Isolated = true
		case "parting":
			e.shares = true
		case "secret":
			e.secret = text
		case "cachedir":
			e.foreign[text] = true
		case "old":
			e.old, facts.Refusals = true, 0
		default:
			w.t.Fatalf("unknown option %q", o)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	e.self = Self{Facts: facts, Own: own, Token: "token of " + id, Process: "process of " + id, Nonce: func() string {
		w.nonces++
		return fmt.Sprintf("n%d", w.nonces)
	}}
	w.masters[id] = e
	// All masters know the original keys of the others, but no replacement.
	for other, there := range w.masters {
		for x, k := range map[string]*crypt.PrivateKey{"a": pairs[0], "b": pairs[1], "c": pairs[2]} {
			if _, known := there.keys[x]; !known && w.masters[x] != nil && x != other && !there.was[x] {
				there.keys[x], there.was[x] = k.Public(), true
			}
		}
	}
}

func (e *endpoint) Parting() bool { return e.shares }

func (e *endpoint) Token(id string) (string, string, error) {
	if e.foreign[id] {
		return "", "/cache", fs.ErrNotExist
	}
	return "token of " + id, "/cache", nil
}

func (e *endpoint) Related(*x509.Certificate, string) bool { return false }

func (e *endpoint) PeerKey(id string) (*crypt.PublicKey, error) {
	if k := e.keys[id]; k != nil {
		return k, nil
	}
	return nil, fmt.Errorf("%s: %w", e.PeerPath(id), fs.ErrNotExist)
}

func (e *endpoint) PeerPath(id string) string { return "peers/" + id + ".pub" }

func (e *endpoint) Vouch(conn Conn, id string, early bool) *refusal.Error {
	if e.self.Facts.Isolated && early && !conn.TLS {
		return refusal.New(refusal.TLS, "%s does not use TLS", id)
	}
	return nil
}

func (e *endpoint) WasMember(id string) bool { return e.was[id] }

func (e *endpoint) Admit(id, process string) *refusal.Error {
	if e.banned[id] {
		return refusal.New(refusal.Removed, "%s was removed from the cluster", id)
	}
	if e.copied[id] {
		return refusal.New(refusal.InUse, "another process is connected as %s; this one is the %s", id, process)
	}
	return nil
}

func (e *endpoint) now() time.Time { return start.Add(e.offset) }

// dial runs a handshake. A master of an old release does not send the version of refusal codes.
func (w *world) dial(from, to *endpoint, peer string, tls, cut bool) {
	conn := Conn{TLS: tls}
	if tls {
		conn.Begin.Add([]byte("this connection"))
	}
	d, a := NewDialer(from.self, from, conn, peer), NewAnswerer(to.self, to, conn)
	w.said = nil
	w.run(from.self.Facts.ID, to.self.Facts.ID, d, a, from, to, cut)
}

func (w *world) run(fromID, toID string, d, a interface {
	Step([]byte, time.Time) (Out, error)
}, from, to *endpoint, cut bool) {
	var in []byte
	done := false
	for !done {
		out, err := d.Step(in, from.now())
		w.show(fromID, from, out, err)
		if out.Send != nil {
			w.said = append(w.said, out.Send)
		}
		if out.Send == nil {
			return
		}
		ended := err != nil
		back, err := a.Step(from.sends(out.Send), to.now())
		w.show(toID, to, back, err)
		if cut && back.Done {
			fmt.Fprintf(&w.out, "  (the answer is lost)\n")
			return
		}
		in = to.sends(back.Send)
		done = ended || back.Send == nil
	}
}

// sends returns a message in the form that this master's release sends.
func (e *endpoint) sends(b []byte) []byte {
	tag, d, err := wire.Decode(b)
	if !e.old || err != nil || tag != wire.TagRefused || d.Has("sig") {
		return b
	}
	d.Delete("code")
	b, _ = wire.Encode(tag, d)
	return b
}

// replay sends messages of an earlier conversation.
func (w *world) replay(to *endpoint) {
	a := NewAnswerer(to.self, to, Conn{})
	for _, b := range w.said {
		fmt.Fprintf(&w.out, "  (again) %s\n", message(b))
		out, err := a.Step(b, to.now())
		w.show(to.self.Facts.ID, to, out, err)
		if err != nil {
			return
		}
	}
}

func (w *world) show(id string, e *endpoint, out Out, err error) {
	if out.Send != nil {
		fmt.Fprintf(&w.out, "%s: %s\n", id, message(e.sends(out.Send)))
	}
	if why := refusal.Of(err); why != nil {
		fmt.Fprintf(&w.out, "  %s: refused (%s): %s\n", id, why.Code, why.Reason)
	} else if r, ok := err.(*Refused); ok {
		switch {
		case r.Why != nil:
			fmt.Fprintf(&w.out, "  %s: the other end refuses (%s): %s\n", id, r.Why.Code, r.Why.Reason)
		default:
			fmt.Fprintf(&w.out, "  %s: the other end refuses, not authentic: %v\n", id, r.Err)
		}
	} else if err != nil {
		fmt.Fprintf(&w.out, "  %s: failed: %v\n", id, err)
	}
	if out.Done {
		sealed := "no"
		if out.Cipher != nil {
			sealed = "yes"
		}
		fmt.Fprintf(&w.out, "  %s: connected to %q, process %q, sealed frames: %s\n", id, out.Peer.ID, out.Process, sealed)
	}
}

// message formats a message without its random parts.
func message(b []byte) string {
	tag, d, err := wire.Decode(b)
	if err != nil {
		return fmt.Sprint(err)
	}
	return strings.TrimPrefix(tag, "brine/cluster/") + " " + fields(d)
}

func fields(d *value.Dict) string {
	var out []string
	for k, v := range d.All() {
		name := value.Str(k)
		text := ""
		switch v := v.(type) {
		case *value.Dict:
			text = "{" + fields(v) + "}"
		case []byte:
			text = "<bytes>"
		case nil:
			text = "-"
		case float64:
			text = time.UnixMicro(int64(v * 1e6)).UTC().Format("15:04:05")
		default:
			text = value.Str(v)
		}
		if name == "proof" {
			text = "<proof>"
		}
		if name == "nonce" && len(text) > 20 {
			text = "<nonce>"
		}
		out = append(out, name+"="+text)
	}
	return strings.Join(out, " ")
}

func (e *endpoint) AllTLS() bool { return false }

func (e *endpoint) Secret() (string, error) { return e.secret, nil }

func (e *endpoint) Banned(id string) (*refusal.Error, error) {
	if e.banned[id] {
		return refusal.New(refusal.Removed, "%s was removed from this cluster", id), nil
	}
	return nil, nil
}

func (e *endpoint) Welcome(id string, _ []byte) (*wire.Welcome, error) {
	e.keys[id] = e.w.masters[id].self.Own.Public()
	fmt.Fprintf(&e.w.out, "  %s: %s is a member\n", e.self.Facts.ID, id)
	pairs, err := clustertest.Keys()
	return &wire.Welcome{ClusterPub: pairs[3].Public().PEM(), ClusterPEM: pairs[3].PEM()}, err
}

func (w *world) join(from, to *endpoint) {
	pairs, err := clustertest.Keys()
	if err != nil {
		w.t.Fatal(err)
	}
	conn := Conn{TLS: true}
	conn.Begin.Add([]byte("this connection"))
	f, h := from.self, to.self
	j := NewJoiner(Applicant{ID: f.Facts.ID, Cluster: f.Facts.Cluster, Member: h.Facts.ID, Secret: from.secret, Own: f.Own, OwnPub: f.Own.Public().PEM()},
		conn)
	a := NewAdmitter(Host{ID: h.Facts.ID, Cluster: h.Facts.Cluster, Own: h.Own, OwnPub: h.Own.Public().PEM(), Key: pairs[3],
		ClusterPub: pairs[3].Public().PEM()}, to, conn)
	w.run(f.Facts.ID, h.Facts.ID, j, a, from, to, false)
	if j.Welcome != nil {
		fmt.Fprintf(&w.out, "  %s: has the keys of the cluster\n", f.Facts.ID)
	}
}
