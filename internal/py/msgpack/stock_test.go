package msgpack

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"brine/internal/py/value"
	"brine/test/tools"
)

// recode decodes each line of hexadecimal msgpack with Salt and prints it in
// the wire form, the new form, and as repr.
const recode = `
import sys, binascii, salt.payload as p
for line in sys.stdin:
    b = binascii.unhexlify(line.strip())
    v = p.loads(b, encoding="utf-8")
    w, n = p.dumps(v), p.dumps(v, use_bin_type=True)
    print(w.hex() or "-", n.hex(), repr(p.loads(b)).encode("utf-8").hex())
`

// TestAgainstStock compares with stock Salt on random values.
func TestAgainstStock(t *testing.T) {
	tree, python := tools.StockSalt(t)
	r := rand.New(rand.NewPCG(1, 2))
	var in bytes.Buffer
	var values []any
	for range 500 {
		v := randomValue(r, 4)
		b, err := Marshal(v, NewSpec)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, v)
		fmt.Fprintf(&in, "%x\n", b)
	}
	cmd := exec.Command(python, "-W", "ignore", "-c", recode)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+tree)
	cmd.Stdin = &in
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<24)
	for _, v := range values {
		if !lines.Scan() {
			t.Fatal("too few answers")
		}
		compareStock(t, v, strings.Fields(lines.Text()))
	}
}

func compareStock(t *testing.T, v any, answer []string) {
	t.Helper()
	for i, d := range []Dialect{Wire, NewSpec} {
		got, err := Marshal(v, d)
		if err != nil || hex.EncodeToString(got) != answer[i] {
			t.Errorf("dialect %d: %x, %v; Salt says %s", d, got, err, answer[i])
		}
		back, err := Unmarshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if r := value.Repr(back); hex.EncodeToString([]byte(r)) != answer[2] {
			t.Errorf("dialect %d decoded: %s; Salt says %s", d, r, unhex(t, answer[2]))
		}
	}
}

// randomValue prefers values at the limits of each form.
func randomValue(r *rand.Rand, depth int) any {
	kinds := 8
	if depth == 0 {
		kinds = 6
	}
	switch r.IntN(kinds) {
	case 0:
		return value.From([]any{nil, true, false}[r.IntN(3)])
	case 1:
		u := uint64(1)<<r.IntN(64) + uint64(r.IntN(3)) - 1
		if r.IntN(2) == 0 {
			return -int64(u)
		}
		return value.From(u)
	case 2:
		return math.Ldexp(r.NormFloat64(), r.IntN(100)-50)
	case 3:
		return strings.Repeat("é", r.IntN(20)) + strings.Repeat("x", []int{0, 31, 32, 255, 256, 65535, 65536}[r.IntN(7)]>>r.IntN(9))
	case 4:
		return bytes.Repeat([]byte{byte(r.Uint32()), 'a'}, r.IntN(200))
	case 5:
		return time.Unix(r.Int64N(4e9), r.Int64N(1e6)*1000).UTC()
	case 6:
		l := &value.List{}
		for range r.IntN(20) {
			l.Append(randomValue(r, depth-1))
		}
		return l
	}
	d := value.NewDict(0)
	for range r.IntN(20) {
		d.Set(randomValue(r, 0), randomValue(r, depth-1))
	}
	return d
}
