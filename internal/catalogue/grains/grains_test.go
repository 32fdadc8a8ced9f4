package grains

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"brine/internal/base/field"
	"brine/internal/host"
	"brine/internal/host/netif"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// collect returns the grains of m with o, and fails the test on an error.
func collect(t *testing.T, m *host.Machine, o Options) *value.Dict {
	t.Helper()
	o.Machine = m
	d, err := Collect(t.Context(), o, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func expect(t *testing.T, d *value.Dict, want ...any) {
	t.Helper()
	for i := 0; i < len(want); i += 2 {
		k, w := want[i].(string), value.From(want[i+1])
		if got, ok := d.Get(k); !ok || !value.Equal(got, w) {
			t.Errorf("%s is %s, want %s", k, value.Repr(got), value.Repr(w))
		}
	}
}

func TestOptionsAreDeclared(t *testing.T) {
	var o Options
	if err := field.Defaults(&o); err != nil {
		t.Fatal(err)
	}
	if !o.FQDNs || !o.GPU || !o.PCI || o.CacheGrain || o.CacheAge != 5*time.Minute || o.DNSTimeout != time.Second || o.Static.Len() != 0 {
		t.Errorf("defaults are %+v", o)
	}
	fields, err := field.Of(reflect.TypeFor[Options]())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		if f.Doc == "" {
			t.Errorf("%s has no doc", f.Name)
		}
	}
}

// TestHere checks the grains that every machine has, this one included.
func TestHere(t *testing.T) {
	d, err := Collect(t.Context(), Options{ID: "here", Version: "0.1", NoDNS: true, GPU: true, PCI: true}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"kernel", "os", "os_family", "num_cpus", "mem_total", "ip_interfaces", "ipv4", "fqdn", "host", "domain", "locale_info", "path",
		"systempath",
		"shell", "virtual", "ps", "init", "disks", "ssds", "gpus", "efi", "transactional", "zfs_support", "pythonversion", "saltpath", "cwd", "osarch",
		"ip4_gw"} {
		if !d.Has(k) {
			t.Errorf("%s is missing", k)
		}
	}
	expect(t, d, "id", "here", "master", "", "server_id", 1495437547, "kernel", "Linux", "uid", os.Geteuid(), "pid", os.Getpid(), "brine_version", "0.1",
		"saltversioninfo", []int{3007, 10})
	if d.At("saltversion") != "3007.10" {
		t.Errorf("saltversion %v", d.At("saltversion"))
	}
	if d.Int("num_cpus") < 1 || d.Int("mem_total") < 1 {
		t.Error("there are no processors or no memory")
	}
}

// TestServerID checks the number that Salt derives from an id.
func TestServerID(t *testing.T) {
	d := collect(t, &host.Machine{Root: t.TempDir()}, Options{ID: "probe", Master: value.ListOf("a", "b")})
	expect(t, d, "server_id", 734552213, "master", value.ListOf("a", "b"))
}

func network() ([]netif.Interface, error) {
	addr := func(s string, secondary bool) netif.Addr {
		return netif.Addr{Prefix: netip.MustParsePrefix(s), Secondary: secondary}
	}
	return []netif.Interface{
		{Index: 1, Name: "lo", Hardware: "00:00:00:00:00:00", Addrs: []netif.Addr{addr("127.0.0.1/8", false), addr("::1/128", false)}},
		{Index: 2, Name: "eth0", Hardware: "02:00:00:00:00:01", Addrs: []netif.Addr{
			addr("192.0.2.20/24", false), addr("192.0.2.3/24", true), addr("198.51.100.1/24", false), addr("2001:db8::2/64", false),
			addr("fe80::1/64", false)}},
		{Index: 3, Name: "tun0"},
		{Index: 4, Name: "br0", Hardware: "02:00:00:00:00:02", Addrs: []netif.Addr{addr("192.0.2.20/24", false)}},
	}, nil
}

func TestNetwork(t *testing.T) {
	m := machine(t, map[string]string{
		"proc/sys/kernel/hostname": "web\n",
		"etc/hosts": "192.0.2.20 web.example.com web\n198.51.100.1 web.example.com\n2001:db8::2 web6.example.com web.example.com\n" +
			"192.0.2.3 db\n",
	})
	d := collect(t, m, Options{interfaces: network, FQDNs: true})
	expect(t, d,
		"localhost", "web", "fqdn", "web.example.com", "host", "web", "domain", "example.com",
		"hwaddr_interfaces", map[string]string{"lo": "00:00:00:00:00:00", "eth0": "02:00:00:00:00:01", "br0": "02:00:00:00:00:02"},
		"ip4_interfaces", value.DictOf("lo", []string{"127.0.0.1"}, "eth0", []string{"192.0.2.20", "198.51.100.1", "192.0.2.3"}, "tun0", []string{}, "br0",
			[]string{"192.0.2.20"}),
		"ip6_interfaces", value.DictOf("lo", []string{"::1"}, "eth0", []string{"2001:db8::2", "fe80::1"}, "tun0", []string{}, "br0", []string{}),
		"ip_interfaces", value.DictOf("lo", []string{"127.0.0.1", "::1"}, "eth0",
			[]string{"192.0.2.20", "198.51.100.1", "2001:db8::2", "fe80::1", "192.0.2.3"}, "tun0", []string{}, "br0", []string{"192.0.2.20"}),
		"ipv4", []string{"127.0.0.1", "192.0.2.3", "192.0.2.20", "198.51.100.1"},
		"ipv6", []string{"::1", "2001:db8::2", "fe80::1"},
		"fqdn_ip4", []string{"192.0.2.20", "198.51.100.1"}, "fqdn_ip6", []string{"2001:db8::2"},
		"fqdns", []string{"db", "web.example.com", "web6.example.com"},
	)
	if got := value.Repr(value.Strings([]string{"lo", "eth0", "tun0", "br0"})); value.Repr(&value.List{Items: d.Dict("ip_interfaces").Keys()}) != got {
		t.Errorf("the order of interfaces is %v", d.Dict("ip_interfaces").Keys())
	}
	d = collect(t, m, Options{interfaces: network})
	expect(t, d, "fqdns", value.ListOf())
	broken := errors.New("no netlink")
	d, err := Collect(t.Context(), Options{Machine: m, interfaces: func() ([]netif.Interface, error) { return nil, broken }}, quiet)
	if !errors.Is(err, broken) || strings.Count(err.Error(), "no netlink") != 1 {
		t.Errorf("the error is %v", err)
	}
	expect(t, d, "ipv4", value.ListOf(), "fqdn_ip4", value.ListOf(), "host", "web")
}

// deaf is a DNS resolver that never answers.
type deaf struct{}

func (deaf) LookupCNAME(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func (deaf) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (deaf) LookupAddr(ctx context.Context, _ string) ([]string, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestDNSIsBounded uses a fake clock: all lookups together may take the
// timeout once, and no time without DNS.
func TestDNSIsBounded(t *testing.T) {
	m := machine(t, map[string]string{"proc/sys/kernel/hostname": "web\n"})
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			o    Options
			want time.Duration
		}{
			{Options{DNS: deaf{}, FQDNs: true, DNSTimeout: 3 * time.Second}, 3 * time.Second},
			{Options{DNS: deaf{}, FQDNs: true, DNSTimeout: 3 * time.Second, NoDNS: true}, 0},
			{Options{DNS: deaf{}, FQDNs: true}, 0},
		} {
			c.o.interfaces = network
			start := time.Now()
			d := collect(t, m, c.o)
			if took := time.Since(start); took != c.want {
				t.Errorf("%+v took %s", c.o, took)
			}
			expect(t, d, "fqdn", "web", "domain", "", "fqdns", value.ListOf(), "fqdn_ip4", value.ListOf())
		}
	})
}

func TestGPUs(t *testing.T) {
	files := map[string]string{"lspci": "1002:73bf 030000 a\n10de:1eb8 030200 b\n1013:00b8 030000 c\n8086:1237 060000 d\n1a03:2000 038000 e\n" +
		"ffff:0001 120000 f\n15ad:0405 030100 g\n",
		"usr/share/hwdata/pci.ids": "1002  Advanced Micro Devices, Inc. [AMD/ATI]\n\t73bf  Navi 21\n1013  Cirrus Logic\n\t00b8  GD 5446\n10de  " +
			"NVIDIA Corporation\n\t1eb8  Tesla T4\n"}
	m := machine(t, files)
	fill(t, m, files)
	gpu := func(vendor, model string) *value.Dict { return value.DictOf("vendor", vendor, "model", model) }
	d := collect(t, m, Options{GPU: true, PCI: true})
	expect(t, d, "num_gpus", 5, "gpus", value.ListOf(gpu("amd", "Navi 21"), gpu("nvidia", "Tesla T4"), gpu("unknown", "GD 5446"),
		gpu("aspeed", "Device 2000"), gpu("unknown", "Device 0001")))
	for _, o := range []Options{{GPU: true}, {PCI: true}} {
		expect(t, collect(t, m, o), "num_gpus", 0, "gpus", value.ListOf())
	}
}

func TestSystem(t *testing.T) {
	files := map[string]string{
		"usr/bin/systemctl":   "exit 0\nsystemd 252 (252.36)\n+PAM +AUDIT\n",
		"usr/bin/localectl":   "exit 0\n",
		"sbin/selinuxenabled": "exit 0\n", "sbin/getenforce": "exit 0\n",
		"etc/selinux/config": "", "sys/fs/selinux/enforce": "1",
		"usr/sbin/transactional-update":          "exit 0\n",
		"usr/bin/man":                            "exit 0\n",
		"usr/share/man/man7/zpool-features.7.gz": "",
		"usr/sbin/zpool":                         "exit 0\ntank\t10G\nodd\t1.1K\nnone\t-\n",
		"sys/module/zfs/x":                       "",
		"sbin/lvm":                               "exit 0\n  data\n",
		"usr/bin/python3.9":                      "exit 0\n",
		"sys/class/fc_host/host0/port_name":      "0x21\n",
		"etc/passwd":                             "",
		"proc/sys/kernel/version":                "#1 SMP\n",
		"proc/sys/kernel/arch":                   "aarch64\n",
		"etc/os-release":                         "NAME=\"Debian GNU/Linux\"\nID=debian\nVERSION_ID=12\n",
		"var/lib/dpkg/status": "Package: base\nArchitecture: all\n\nPackage: dpkg\nEssential: yes\nArchitecture: arm64\n\n" +
			"Package: x\nArchitecture: i386\n",
	}
	m := machine(t, files)
	fill(t, m, files)
	if err := os.Symlink("python3.9", m.Path("/usr/bin/python3")); err != nil {
		t.Fatal(err)
	}
	m.Getenv = func(name string) string {
		return map[string]string{"PATH": "/opt/bin:/usr/bin ", "SHELL": "/bin/zsh"}[name]
	}
	d := collect(t, m, Options{Fibre: true, AppendDomain: "example.com", GrainOpts: true, Opts: value.DictOf("id", "x")})
	expect(t, d,
		"systemd", value.DictOf("version", "252", "features", "+PAM +AUDIT"), "selinux", value.DictOf("enabled", true, "enforced", "Enforcing"),
		"transactional", true,
		"zfs_support", true, "zfs_feature_flags", true, "zpool", value.DictOf("tank", 10<<30, "odd", 1126.4, "none", "-"), "lvm",
		value.DictOf("data", value.ListOf()),
		"pythonversion", value.ListOf(3, 9, 0, "final", 0), "pythonexecutable", "/usr/bin/python3", "fc_wwn", value.ListOf("21"), "shell", "/bin/zsh", "path",
		"/opt/bin:/usr/bin",
		"systempath", value.ListOf("/opt/bin", "/usr/bin"), "append_domain", "example.com", "opts", value.DictOf("id", "x"), "cpuarch", "aarch64", "osarch",
		"arm64", "kernelversion", "#1 SMP",
	)
	bare := collect(t, machine(t, map[string]string{"etc/hostname": ""}), Options{})
	expect(t, bare, "pythonversion", value.ListOf(3, 10, 0, "final", 0), "pythonexecutable", "", "shell", "/bin/sh", "path", "", "fqdn",
		"localhost.localdomain")
	for _, k := range []string{"selinux", "systemd", "lvm", "zpool", "fc_wwn", "iscsi_iqn", "append_domain", "opts", "mdadm", "dns", "virtual_subtype"} {
		if bare.Has(k) {
			t.Errorf("a bare machine has %s: %s", k, value.Repr(bare.At(k)))
		}
	}
}

func TestOSArch(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  any
	}{
		"multiarch": {map[string]string{"etc/os-release": "NAME=Ubuntu\nID=ubuntu\n", "var/lib/dpkg/arch": "amd64\ni386\n"}, "amd64"},
		"no dpkg":   {map[string]string{"etc/os-release": "NAME=Ubuntu\nID=ubuntu\n"}, "x86_64"},
		"asking":    {map[string]string{"etc/os-release": "NAME=Ubuntu\nID=ubuntu\n", "usr/bin/dpkg": "exit 0\nriscv64\n"}, "riscv64"},
		"rpm": {map[string]string{"etc/os-release": "NAME=Fedora\nID=fedora\n", "usr/lib/rpm/macros": "%_x\ty\n%_host_cpu\t\tarmv7hl\n"},
			"armv7hl"},
		"rpm by kernel": {map[string]string{"etc/os-release": "NAME=Fedora\nID=fedora\n"}, "x86_64"},
		"opkg": {map[string]string{"etc/lsb-release": "DISTRIB_ID=nilrt\n",
			"usr/bin/opkg": "exit 0\narch all 1\narch core2-64 16\narch any 6\nodd\n"}, []string{"core2-64", "any", "all"}},
		"other": {map[string]string{"etc/os-release": "NAME=Void\nID=void\n"}, "x86_64"},
	} {
		t.Run(name, func(t *testing.T) {
			c.files["proc/sys/kernel/arch"] = "x86_64\n"
			m := machine(t, c.files)
			fill(t, m, c.files)
			expect(t, collect(t, m, Options{}), "osarch", c.want)
		})
	}
}

func TestGrainsFileAndStatic(t *testing.T) {
	m := machine(t, map[string]string{
		"etc/salt/grains": "roles: [web, db]\nos: Mine\nshell: never\nnested: {a: {b: 1}, c: 2}\n",
		"etc/salt/minion": "",
		"other/grains":    "a: 1\nb: [1\nc: 2\n",
		"list/grains":     "- a\n- b\n",
		"empty/grains":    "# nothing\n",
	})
	static := value.DictOf("roles", value.ListOf("config"), "nested", value.DictOf("a", value.DictOf("z", 9)), "id", "forged")
	before := value.Repr(static)
	d := collect(t, m, Options{ConfFile: "/etc/salt/minion", Static: static, ID: "real"})
	expect(t, d, "roles", value.ListOf("config"), "os", "Mine", "shell", "/bin/sh", "nested", value.DictOf("a", value.DictOf("z", 9)), "id", "forged")
	d = collect(t, m, Options{ConfFile: "/etc/salt", Static: static, DeepMerge: true})
	expect(t, d, "roles", value.ListOf("config"), "nested", value.DictOf("a", value.DictOf("b", 1, "z", 9), "c", 2))
	if value.Repr(static) != before {
		t.Errorf("the configuration has changed: %s", value.Repr(static))
	}
	for dir, want := range map[string]string{"/other": "/other/grains: line 3", "/list": "/list/grains: line 1: expected names and values, got a list"} {
		d, err := Collect(t.Context(), Options{Machine: m, ConfFile: dir, ID: "still"}, quiet)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", dir, err, want)
		}
		expect(t, d, "id", "still", "kernel", "")
	}
	collect(t, m, Options{ConfFile: "/empty"})
	collect(t, m, Options{ConfFile: "/missing/minion"})
}

func TestMergeAndGet(t *testing.T) {
	base := value.DictOf("a", value.DictOf("x", 1, "l", value.ListOf(1)), "b", 1)
	over := value.DictOf("a", value.DictOf("y", 2, "l", value.ListOf(2)), "c", 3)
	if got := Merge(base, false, over, nil); !value.Equal(got, value.DictOf("a", value.DictOf("y", 2, "l", value.ListOf(2)), "b", 1, "c", 3)) {
		t.Errorf("flat: %s", value.Repr(got))
	}
	if got := Merge(base, true, nil, over); !value.Equal(got, value.DictOf("a", value.DictOf("x", 1, "l", value.ListOf(2), "y", 2), "b", 1, "c", 3)) {
		t.Errorf("deep: %s", value.Repr(got))
	}
	if got := Merge(nil, true, over); !value.Equal(got, over) {
		t.Errorf("of nothing: %s", value.Repr(got))
	}
	if !value.Equal(base, value.DictOf("a", value.DictOf("x", 1, "l", value.ListOf(1)), "b", 1)) {
		t.Errorf("the base has changed: %s", value.Repr(base))
	}
	if v, ok := Get(base, "a:l:0", ""); !ok || v != int64(1) {
		t.Errorf("get: %v, %v", v, ok)
	}
	if v, ok := Get(base, "a/x", "/"); !ok || v != int64(1) {
		t.Errorf("get: %v, %v", v, ok)
	}
}

// TestBlacklist has the names that Salt itself matches with these patterns.
func TestBlacklist(t *testing.T) {
	d := value.DictOf("os", 1, "os_family", 2, "cpu_flags", 3, "a.b", 4, "a]b", 5, "a[b", 6, "x^y", 7, 8, "number", "new\nline", 9, "nodename", 10, "a)(b",
		11)
	for pattern, want := range map[string]string{
		`os`:               "os",
		`os*`:              "os os_family",
		`?s`:               "os",
		`[no]s`:            "os",
		`[!x]s`:            "os",
		`[!o]s`:            "os",
		`cpu_(flags|x)`:    "cpu_flags",
		`o.`:               "os",
		`a.b`:              "a.b a]b a[b",
		`a[]]b`:            "a]b",
		`a[[]b`:            "a[b",
		`a[b`:              "a[b",
		`x[^]y`:            "x^y",
		`x[!^]y`:           "x^y",
		`*line`:            "new\nline",
		`(`:                "",
		`o\w`:              "os",
		`[a-c]pu_f*`:       "cpu_flags",
		`OS`:               "",
		``:                 "",
		`cpu`:              "",
		`os|node`:          "os os_family",
		`cpu|os`:           "os cpu_flags",
		`family|os_family`: "os_family",
		`a)(b`:             "a)(b",
		`new.line`:         "",
		`os$`:              "os",
		`^os`:              "os",
	} {
		kept := without(d, []string{pattern})
		var gone []string
		for k := range d.All() {
			if !kept.Has(k) {
				gone = append(gone, k.(string))
			}
		}
		if got := strings.Join(gone, " "); got != want {
			t.Errorf("%q drops %q, want %q", pattern, got, want)
		}
	}
	got := collect(t, &host.Machine{Root: t.TempDir()}, Options{Blacklist: []string{"*"}, Static: value.DictOf("mine", 1)})
	if value.Repr(got) != "{'mine': 1}" {
		t.Errorf("all is blacklisted but %s", value.Repr(got))
	}
}

func TestCache(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "grains.cache.p")
	m := machine(t, map[string]string{"etc/os-release": "NAME=X\nVERSION_ID=1.2\n", "proc/cmdline": "a=b"})
	o := Options{CacheGrain: true, CacheDir: dir, CacheAge: time.Hour, ID: "first"}
	first := collect(t, m, o)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("the file: %v, %v", st, err)
	}
	o.ID = "second"
	again := collect(t, m, o)
	if !value.Equal(untuple(again), untuple(first)) {
		t.Error("the cache holds other grains")
	}
	if _, ok := again.At("osrelease_info").(value.Tuple); !ok {
		t.Error("osrelease_info is no tuple any more")
	}
	o.Refresh = true
	expect(t, collect(t, m, o), "id", "second")
	o.Refresh = false
	expect(t, collect(t, m, o), "id", "second")
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	o.ID = "third"
	expect(t, collect(t, m, o), "id", "third")
	for _, text := range []string{"", "junk", "\x80", "\x93\x01\x02\x03"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o.ID = "after " + text
		expect(t, collect(t, m, o), "id", o.ID)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := msgpack.UnmarshalTyped(b); err != nil || v.(*value.Dict).Str("kernel") != first.Str("kernel") {
		t.Errorf("the file holds %v, %v", v, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("files are left over: %q", left)
	}
	o.CacheDir = filepath.Join(dir, "missing")
	if d, err := Collect(t.Context(), o, quiet); err == nil || d.Len() == 0 {
		t.Errorf("a missing directory: %v", err)
	}
}

func TestMetadata(t *testing.T) {
	const token = "secret"
	needToken := false
	tree := map[string]string{
		"latest/": "dynamic\nmeta-data\nuser-data", "latest/dynamic/": "instance-identity/\n", "latest/dynamic/instance-identity/": "doc",
		"latest/dynamic/instance-identity/doc": "{\"a\": 1}", "latest/meta-data/": "ami-id\npublic-keys/\nmissing", "latest/meta-data/ami-id": "ami-1",
		"latest/meta-data/public-keys/": "0=my-key", "latest/meta-data/public-keys/0": "openssh-key",
		"latest/meta-data/public-keys/0/openssh-key": "ssh-rsa x",
		"latest/user-data/":                          "#!/bin/sh\nexit 0\n",
	}
	var puts int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/")
		switch {
		case r.Method == http.MethodPut && path == "latest/api/token" && r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "21600":
			puts++
			w.Write([]byte(token))
		case needToken && r.Header.Get("X-aws-ec2-metadata-token") != token:
			w.WriteHeader(http.StatusUnauthorized)
		case tree[path] == "":
			w.WriteHeader(http.StatusNotFound)
		case strings.HasPrefix(path, "latest/user-data"):
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Write([]byte(tree[path]))
		default:
			w.Header().Set("Content-Type", "text/plain")
			w.Write([]byte(tree[path]))
		}
	}))
	defer server.Close()
	o := Options{Metadata: true, MetadataURL: server.URL, MetadataTimeout: 10 * time.Second}
	m := &host.Machine{Root: t.TempDir()}
	for _, needToken = range []bool{false, true} {
		d := collect(t, m, o)
		expect(t, d, "dynamic", value.DictOf("instance-identity", value.DictOf("doc", `{"a": 1}`)),
			"meta-data", value.DictOf("ami-id", "ami-1", "public-keys", value.DictOf("my-key", value.DictOf("openssh-key", "ssh-rsa x")), "missing", nil),
			"user-data", "#!/bin/sh\nexit 0\n")
	}
	if puts != 1 {
		t.Errorf("%d tokens were asked for", puts)
	}
	tree["latest/meta-data/"] = "loop/"
	for path := "latest/meta-data/loop/"; len(path) < 500; path += "loop/" {
		tree[path] = "loop/"
	}
	if d, err := Collect(t.Context(), Options{Machine: m, Metadata: true, MetadataURL: server.URL, MetadataTimeout: 10 * time.Second}, quiet); err == nil ||
		!d.Has("dynamic") {
		t.Errorf("an endless tree: %v", err)
	}
	server.Close()
	if d := collect(t, m, o); d.Has("meta-data") {
		t.Error("there are metadata without a server")
	}
}

func TestHypervisorFeatures(t *testing.T) {
	m := machine(t, map[string]string{"proc/xen/xsd_kva": "", "sys/hypervisor/properties/features": "nonsense\n", "sys/hypervisor/version/major": "4\n"})
	d := collect(t, m, Options{})
	expect(t, d, "virtual", "xen", "virtual_subtype", "Xen Dom0")
	if d.Has("virtual_hv_features") || d.Has("virtual_hv_version") {
		t.Errorf("features of nothing: %s", value.Repr(d))
	}
}

// TestNoLeaks checks that every goroutine has ended when Collect returns.
func TestNoLeaks(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 5 {
		collect(t, &host.Machine{Root: t.TempDir()}, Options{FQDNs: true, DNS: deaf{}, DNSTimeout: time.Millisecond, interfaces: network})
	}
	if after := runtime.NumGoroutine(); after > before+1 {
		t.Errorf("%d goroutines before, %d after", before, after)
	}
}

func TestTimesAreLogged(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if _, err := Collect(t.Context(), Options{Machine: &host.Machine{Root: t.TempDir()}}, log); err != nil {
		t.Fatal(err)
	}
	if b.Len() == 0 {
		t.Error("nothing is logged")
	}
}

func FuzzBlacklist(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"os*", "[!a]", "[", "a[]b", `\`, "[a-", "(?P<x>"} {
		f.Add(s)
	}
	d := value.DictOf("os", 1, "cpu_flags", 2)
	f.Fuzz(func(t *testing.T, pattern string) {
		without(d, []string{pattern})
	})
}

func BenchmarkCollect(b *testing.B) {
	for b.Loop() {
		if _, err := Collect(b.Context(), Options{NoDNS: true, GPU: true, PCI: true, FQDNs: true}, quiet); err != nil {
			b.Fatal(err)
		}
	}
}
