package grains

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"brine/internal/py/value"
	"brine/test/tools"
)

// differences are the grains that may differ from those of Salt on the same
// machine, each for a reason that the package comment gives.
var differences = map[string]string{
	"pid":              "another process",
	"pythonexecutable": "describes the system's python3, not the one that runs Salt",
	"pythonpath":       "belongs to the Python that runs Salt",
	"pythonversion":    "describes the system's python3, and not its micro version",
	"saltpath":         "the directory of our own program",
	"zmqversion":       "the libzmq whose protocol we speak, not one that is installed",
	"package":          "how Salt was installed",
	"brine_version":    "our own",
}

// stockGrains returns the grains that stock Salt finds on this machine, as it
// prints them.
func stockGrains(t *testing.T, conf string) map[string]any {
	t.Helper()
	stock, python := tools.StockSalt(t)
	cmd := exec.Command(python, "-W", "ignore", filepath.Join(stock, "scripts", "salt-call"), "--local", "-c", conf, "grains.items", "--out=json")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+stock)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("salt-call: %v\n%s", err, stderr.String())
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	dec.UseNumber()
	var reply struct{ Local map[string]any }
	if err := dec.Decode(&reply); err != nil || len(reply.Local) < 20 {
		t.Fatalf("salt-call printed no grains: %v\n%s%s", err, out, stderr.String())
	}
	return reply.Local
}

// model turns decoded JSON into the value model.
func model(v any) any {
	switch x := v.(type) {
	case map[string]any:
		d := value.NewDict(len(x))
		for k, w := range x {
			d.Set(k, model(w))
		}
		return d
	case []any:
		l := &value.List{}
		for _, w := range x {
			l.Append(model(w))
		}
		return l
	case json.Number:
		if i, ok := new(big.Int).SetString(x.String(), 10); ok {
			return value.Big(i)
		}
		f, _ := x.Float64()
		return f
	}
	return v
}

// untuple converts tuples to lists, as JSON does.
func untuple(v any) any {
	switch x := v.(type) {
	case value.Tuple:
		return untuple(&value.List{Items: x})
	case *value.List:
		l := &value.List{}
		for _, w := range x.Items {
			l.Append(untuple(w))
		}
		return l
	case *value.Dict:
		d := value.NewDict(x.Len())
		for k, w := range x.All() {
			d.Set(k, untuple(w))
		}
		return d
	}
	return v
}

// TestAgainstSalt compares every grain of this machine with what Salt finds.
func TestAgainstSalt(t *testing.T) {
	conf := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(conf, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("minion", "id: side-by-side.example.com\nroot_dir: "+t.TempDir()+"\nfile_client: local\nlog_level: error\nmaster: salt.example.com\n"+
		"append_domain: example.com\ngrains_blacklist:\n  - mem_*\n  - 'swap.total|nodename'\n  - from_file_b*\n"+
		"iscsi_grains: true\nnvme_grains: true\nfibre_channel_grains: true\n"+
		"grains:\n  from_config: [1, two, {three: 4}]\n  os_family: Changed\n")
	write("grains", "from_file_a:\n  deep: {er: 1.5}\nfrom_file_b: gone\nshell: overruled\nkernel: replaced\nfrom_config: lost\n1: number\n")
	stock := stockGrains(t, conf)
	ours, err := Collect(context.Background(), Options{
		ID: "side-by-side.example.com", Master: "salt.example.com", ConfFile: filepath.Join(conf, "minion"),
		FQDNs: true, GPU: true, PCI: true, ISCSI: true, NVMe: true, Fibre: true, AppendDomain: "example.com", DNSTimeout: 5e9, Version: "test",
		Blacklist: []string{"mem_*", "swap.total|nodename", "from_file_b*"},
		Static:    value.DictOf("from_config", []any{1, "two", value.DictOf("three", 4)}, "os_family", "Changed"),
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for k, v := range ours.All() {
		name := value.Str(k)
		seen[name] = true
		want, ok := stock[name]
		if reason, known := differences[name]; known {
			t.Logf("%s may differ (%s): %s, Salt has %s", name, reason, value.Repr(v), value.Repr(model(want)))
			continue
		}
		if !ok {
			t.Errorf("%s is no grain of Salt's: %s", name, value.Repr(v))
		} else if got := untuple(v); !value.Equal(got, model(want)) {
			t.Errorf("%s\n    is       %s\n    Salt has %s", name, value.Repr(got), value.Repr(model(want)))
		}
	}
	for name, v := range stock {
		if !seen[name] {
			t.Errorf("%s is missing: Salt has %s", name, value.Repr(model(v)))
		}
	}
	t.Logf("%d grains compared, %d of Salt's", ours.Len(), len(stock))
}

// TestSaltReadsCache checks that Salt reads a cache file of Brine and shows
// its grains.
func TestSaltReadsCache(t *testing.T) {
	conf, root := t.TempDir(), t.TempDir()
	cache := filepath.Join(root, "var", "cache", "salt", "minion")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	text := "id: cached\nroot_dir: " + root + "\nfile_client: local\nlog_level: error\ngrains_cache: true\n"
	if err := os.WriteFile(filepath.Join(conf, "minion"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	static := value.DictOf("text", "grüße", "number", 7, "nested", value.DictOf("a", []any{1, nil, true, 2.5}))
	o := Options{ID: "cached", Version: "test", NoDNS: true, Static: static, CacheGrain: true, CacheDir: cache, CacheAge: time.Hour}
	ours, err := Collect(t.Context(), o, quiet)
	if err != nil {
		t.Fatal(err)
	}
	stock := stockGrains(t, conf)
	for k, v := range ours.All() {
		if got := model(stock[k.(string)]); !value.Equal(untuple(v), got) {
			t.Errorf("%s is %s, Salt reads %s", k, value.Repr(v), value.Repr(got))
		}
	}
}
