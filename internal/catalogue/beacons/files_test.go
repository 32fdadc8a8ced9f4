package beacons

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"brine/internal/host"
	"brine/internal/py/value"
	"brine/test/tools"
)

// news returns the events of a beacon, which look compares.
func (r *rig) news(kind string, config any) ([]*value.Dict, error) {
	r.t.Helper()
	c, err := ParseConfig(config)
	if err == nil {
		err = r.kinds[kind].Validate(c)
	}
	if err != nil {
		r.t.Fatalf("%s: %v", kind, err)
	}
	return r.kinds[kind].Look(context.Background(), Look{Config: c, Memory: r.memory, Call: r.call, Now: r.now, Held: &r.held})
}

func (r *rig) add(path, text string) {
	r.t.Helper()
	f, err := os.OpenFile(filepath.Join(r.root, path), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.WriteString(f, text); err != nil {
		r.t.Fatal(err)
	}
}

func TestLog(t *testing.T) {
	r := newRig(t)
	conf := value.ListOf(dict("file", "/var/log/app"),
		dict("tags", dict("bye/world", dict("regex", ".*good-bye.*"), "hi", dict("regex", "hello"), "none", nil)))
	if _, err := r.news("log", conf); err == nil {
		t.Error("a missing file is no error")
	}
	r.look("log", conf, "")
	r.file("var/log/app", "hello of the first\n")
	r.look("log", conf, "{'tag': 'hi', 'match': 'yes', 'raw': 'hello of the first', 'error': ''}")
	r.add("var/log/app", "say hello\nhello, and good-bye\nhello with")
	r.look("log", conf, "{'tag': 'bye/world', 'match': 'yes', 'raw': 'hello, and good-bye', 'error': ''} {'tag': 'hi', 'match': 'yes', 'raw': "+
		"'hello, and good-bye', 'error': ''}")
	r.look("log", conf, "")
	r.add("var/log/app", "out end\n")
	r.look("log", conf, "{'tag': 'hi', 'match': 'yes', 'raw': 'hello without end', 'error': ''}")
	// Rotated: another file with that name is read from its beginning, even if it is
	// longer.
	if err := os.Remove(filepath.Join(r.root, "var/log/app")); err != nil {
		t.Fatal(err)
	}
	r.file("var/log/other", "") // takes the inode number of the removed file
	r.file("var/log/app", strings.Repeat("x\n", 100)+"hello again\n")
	r.look("log", conf, "{'tag': 'hi', 'match': 'yes', 'raw': 'hello again', 'error': ''}")
	// A file that exists at the first look is read from its end.
	r.memory = value.NewDict(0)
	r.look("log", conf, "")
	r.look("log", conf, "")
}

func TestLogIsBounded(t *testing.T) {
	r := newRig(t)
	conf := value.ListOf(dict("file", "/log"), dict("tags", dict("t", dict("regex", "end"))))
	r.file("log", "")
	r.look("log", conf, "")
	r.add("log", strings.Repeat("x", maxRead+10)+"\nend\n")
	r.look("log", conf, "")
	r.look("log", conf, "{'tag': 't', 'match': 'yes', 'raw': 'end', 'error': ''}")
}

// record encodes a record of wtmp.
func record(kind int16, line, user, host string, at time.Time) string {
	b := make([]byte, recordSize())
	binary.NativeEndian.PutUint16(b, uint16(kind))
	binary.NativeEndian.PutUint32(b[4:], 4711)
	copy(b[8:40], line)
	copy(b[40:44], "ts/0")
	copy(b[44:76], user)
	copy(b[76:332], host)
	binary.NativeEndian.PutUint16(b[332:], 3)
	binary.NativeEndian.PutUint16(b[334:], 5)
	if wideRecords() {
		binary.NativeEndian.PutUint64(b[336:], 7)
		binary.NativeEndian.PutUint64(b[344:], uint64(at.Unix()))
	} else {
		binary.NativeEndian.PutUint32(b[336:], 7)
		binary.NativeEndian.PutUint32(b[340:], uint32(at.Unix()))
	}
	return string(b)
}

func TestLogins(t *testing.T) {
	r := newRig(t)
	r.file("etc/group", "ops:x:10:anna,bert\nusers:x:11:\n")
	r.file("etc/passwd", "")
	r.file("var/log/wtmp", record(7, "pts/9", "old", "", r.now))
	r.now = time.Date(2026, 11, 23, 12, 30, 0, 0, time.Local)
	event := func(kind, line, user, host, action string) string {
		return fmt.Sprintf("{'type': %s, 'PID': 4711, 'line': '%s', 'inittab': 'ts/0', 'user': '%s', 'hostname': '%s', 'exit_status': 3, 'session': "+
			"5, 'time': 7, 'addr': %d%s}",
			kind, line, user, host, r.now.Unix(), action)
	}
	in, out := ", 'action': 'login'", ", 'action': 'logout'"
	none := value.ListOf()
	r.look("wtmp", none, "")
	r.add("var/log/wtmp", record(7, "pts/0", "anna", "192.0.2.1", r.now)+record(8, "pts/0", "", "", r.now)+record(8, "pts/1", "", "", r.now)+
		record(2, "~", "reboot", "6.1", r.now)[:100])
	r.look("wtmp", none, event("7", "pts/0", "anna", "192.0.2.1", in)+" "+event("8", "pts/0", "anna", "", out)+" "+event("8", "pts/1", "", "", out))
	r.add("var/log/wtmp", record(2, "~", "reboot", "6.1", r.now)[100:])
	r.look("wtmp", none, event("2", "~", "reboot", "6.1", ""))
	for _, c := range []struct {
		name   string
		config any
		users  string
	}{
		{"user", value.ListOf(dict("users", dict("anna", nil))), "anna"},
		{"hours", value.ListOf(dict("users", dict("anna", dict("time_range", dict("start", "8am", "end", "12:00")), "carl", nil)),
			dict("defaults", dict("time_range", dict("start", "8am", "end", "4 pm")))), "carl"},
		{"defaults", value.ListOf(dict("defaults", dict("time_range", dict("start", "1:00pm", "end", "14:00:00")))), ""},
		{"day", value.ListOf(dict("defaults", dict("time_range", dict("start", "2026-11-23 12:00", "end", "2026-11-23 13:00")))), "anna bert carl"},
		{"group", value.ListOf(dict("groups", dict("ops", nil, "none such", nil))), "anna bert"},
		{"user before group", value.ListOf(dict("groups", dict("ops", nil)),
			dict("users", dict("bert", dict("time_range", dict("start", "8am", "end", "9am"))))), "anna"},
		{"empty group", value.ListOf(dict("groups", dict("users", nil))), ""},
	} {
		for _, user := range []string{"anna", "bert", "carl"} {
			r.add("var/log/wtmp", record(7, "pts/0", user, "", r.now))
		}
		got, err := r.news("wtmp", c.config)
		var users []string
		for _, d := range got {
			users = append(users, d.Str("user"))
		}
		if text := strings.Join(users, " "); err != nil || text != c.users {
			t.Errorf("%s: %q %v, want %q", c.name, text, err, c.users)
		}
	}
	r.add("var/log/wtmp", record(9, "pts/0", "anna", "", r.now))
	r.look("wtmp", value.ListOf(dict("ut_type", dict("login", int64(9)))), event("9", "pts/0", "anna", "", in))

	r.memory = value.NewDict(0)
	r.file("var/log/btmp", "")
	r.look("btmp", none, "")
	r.add("var/log/btmp", record(6, "ssh:notty", "root", "203.0.113.9", r.now))
	r.look("btmp", none, event("6", "ssh:notty", "root", "203.0.113.9", ""))
}

func TestNetworkInfo(t *testing.T) {
	r := newRig(t)
	r.file("proc/net/dev", "Inter-|   Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  eth0:100 2 0 0 0 0 0 0 200 20 1 2 0 0 0 0\n")
	conf := func(name string, kv ...any) *value.List {
		return value.ListOf(dict("interfaces", dict(name, dict(kv...))))
	}
	lo := "{'interface': 'lo', 'network_info': {'bytes_sent': 9, 'bytes_recv': 1, 'packets_sent': 10, 'packets_recv': 2, 'errin': 3, 'errout': 11, " +
		"'dropin': 4, 'dropout': 12}}"
	r.look("network_info", conf("lo", "type", "equal", "errin", int64(3)), lo)
	r.look("network_info", conf("lo", "errin", "3"), lo)
	r.look("network_info", conf("lo", "errin", int64(2)), "")
	r.look("network_info", conf("lo", "type", "greater", "errin", int64(2)), lo)
	r.look("network_info", conf("lo", "type", "greater", "errin", int64(3)), "")
	r.look("network_info", conf("none", "errin", int64(3)), "")
	r.look("network_info", value.ListOf(dict("interfaces", dict("eth0", dict("type", "greater", "bytes_recv", int64(99)), "lo", dict("dropin", int64(5))))),
		"{'interface': 'eth0', 'network_info': {'bytes_sent': 200, 'bytes_recv': 100, 'packets_sent': 20, 'packets_recv': 2, 'errin': 0, 'errout': "+
			"1, 'dropin': 0, 'dropout': 2}}")
}

func TestPackages(t *testing.T) {
	r := newRig(t)
	conf := value.ListOf(dict("pkgs", value.ListOf("zsh", "vim")))
	set := func(zsh, latest, vim string) {
		r.answers["pkg.version zsh"], r.answers["pkg.latest_version zsh"], r.answers["pkg.version vim"], r.answers["pkg.latest_version vim"] = zsh, latest,
			vim, ""
	}
	set("1", "", "")
	r.look("pkg", conf, "")
	r.look("pkg", conf, "")
	set("1", "2", "9")
	r.look("pkg", conf, "{'pkg': 'zsh', 'version': '2', 'status': 'upgrade'} {'pkg': 'vim', 'version': '9', 'status': 'installed'}")
	r.look("pkg", conf, "")
	set("", "", "9")
	r.look("pkg", conf, "{'pkg': 'zsh', 'version': None, 'status': 'not-installed'}")
}

func TestMonitor(t *testing.T) {
	r := newRig(t)
	r.answers["ps.disk_usage /a"], r.answers["ps.disk_usage /b"], r.answers["status.time"] = "full", false, "noon"
	r.look("salt_monitor", value.ListOf(dict("salt_fun", "status.time")), "{'salt_fun': 'status.time', 'ret': 'noon'}")
	r.look("salt_monitor", value.ListOf(dict("salt_fun", value.ListOf("status.time", dict("ps.disk_usage", dict("args", value.ListOf("/b"))),
		dict("ps.disk_usage", dict("kwargs", value.ListOf(dict("name", "/a"))))))),
		"{'salt_fun': 'status.time', 'ret': 'noon'} {'salt_fun': 'ps.disk_usage', 'ret': 'full', 'kwargs': {'name': '/a'}}")
	if _, err := r.news("salt_monitor", value.ListOf(dict("salt_fun", "no.such"))); err == nil {
		t.Error("a function that does not exist is no error")
	}
}

// TestCertificates compares events with the output of OpenSSL.
func TestCertificates(t *testing.T) {
	r := newRig(t)
	r.now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, _ := new(big.Int).SetString("340282366920938463463374607431768211", 10)
	template := &x509.Certificate{
		SerialNumber: serial, NotBefore: r.now.Add(-time.Hour), NotAfter: r.now.Add(10*24*time.Hour + time.Hour),
		Subject:     pkix.Name{Country: []string{"DE"}, Organization: []string{"Ex"}, CommonName: "www.example.org"},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:        true, BasicConstraintsValid: true, MaxPathLenZero: true, SubjectKeyId: []byte{1, 2, 0xab}, AuthorityKeyId: []byte{1, 2, 0xab},
		DNSNames: []string{"www.example.org", "example.org"}, EmailAddresses: []string{"a@example.org"},
		IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1), net.ParseIP("2001:db8::1")},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	r.file("c.pem", "text before\n"+string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	r.file("bad.pem", "no certificate")
	conf := func(days int64) *value.List {
		return value.ListOf(dict("files", value.ListOf(dict("/c.pem", dict("notify_days", days)))), dict("notify_days", int64(1)))
	}
	r.look("cert_info", conf(9), "")
	got, err := r.news("cert_info", conf(10))
	if err != nil || len(got) != 1 || len(got[0].List("certificates")) != 1 {
		t.Fatal(got, err)
	}
	d, _ := got[0].List("certificates")[0].(*value.Dict)
	names := `C="DE",O="Ex",CN="www.example.org"`
	dicts := value.Repr(dict("C", "DE", "O", "Ex", "CN", "www.example.org"))
	for key, want := range map[string]string{
		"cert_path": "'/c.pem'", "issuer": "'" + names + "'", "subject": "'" + names + "'", "issuer_dict": dicts, "subject_dict": dicts,
		"notAfter_raw": "'20261203130000Z'", "notAfter": "'2026-12-03 13:00:00Z'", "notBefore_raw": "'20261123110000Z'",
		"notBefore":     "'2026-11-23 11:00:00Z'",
		"serial_number": serial.String(), "signature_algorithm": "'ecdsa-with-SHA256'", "version": "2", "has_expired": "False",
	} {
		if text := value.Repr(d.At(key)); text != want {
			t.Errorf("%s: %s, want %s", key, text, want)
		}
	}
	if _, err := r.news("cert_info", value.ListOf(dict("files", value.ListOf("/bad.pem", "/c.pem")), dict("notify_days", int64(-1)))); err == nil {
		t.Error("a file without a certificate is no error")
	}
	r.now = r.now.Add(11 * 24 * time.Hour)
	if got, err := r.news("cert_info", value.ListOf(dict("files", value.ListOf("/c.pem")))); err != nil || len(got) != 1 ||
		!strings.Contains(value.Repr(got[0]), "'has_expired': True") {
		t.Error(got, err)
	}

	program := tools.Need(t, "openssl", "openssl")
	seen := map[string]bool{}
	for _, it := range d.List("extensions") {
		e, _ := it.(*value.Dict)
		name := e.Str("ext_name")
		seen[name] = true
		out, err := exec.Command(program, "x509", "-noout", "-in", filepath.Join(r.root, "c.pem"), "-ext", name).CombinedOutput()
		if err != nil {
			t.Fatal(err, string(out))
		}
		_, text, _ := strings.Cut(string(out), "\n")
		if text = strings.TrimSpace(text); text != e.Str("ext_data") {
			t.Errorf("%s: %q, OpenSSL has %q", name, e.Str("ext_data"), text)
		}
	}
	if len(seen) != 6 {
		t.Error(seen)
	}
}

func TestParseExec(t *testing.T) {
	for line, want := range map[string]string{
		`execve("/bin/ls", ["ls", "-l"], 0x55 /* 20 vars */) = 0`:               "/bin/ls|ls|-l",
		`[pid   123] execve("/bin/e", ["e", "a\"b\\\n\303\251\0"], 0x5) = 0`:    "/bin/e|e|a\"b\\\n\u00e9\x00",
		`execve("/bin/x", ["x"], 0x7 /* 3 vars */ <unfinished ...>`:             "/bin/x|x",
		`execve("/bin/y", [], 0x7) = -1 ENOENT (No such file or directory "q")`: "/bin/y",
		`execve("/bin/z", ["cut`:     "/bin/z",
		`<... execve resumed>) = 0`:  "no",
		`strace: Process 5 attached`: "no",
	} {
		program, args, ok := parseExec(line)
		got := strings.Join(append([]string{program}, args...), "|")
		if !ok {
			got = "no"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// TestShell traces a real shell if strace exists and may be used.
func TestShell(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("strace is for Linux")
	}
	r := newRig(t)
	r.root = ""
	r.kinds = All(&host.Machine{})
	if out, err := exec.Command(tools.Need(t, "strace", "strace"), "-e", "trace=execve", "true").CombinedOutput(); err != nil {
		t.Skipf("strace may not be used here: %s", out)
	}
	name := filepath.Join(t.TempDir(), "brinesh")
	if err := os.Symlink("/bin/sh", name); err != nil {
		t.Fatal(err)
	}
	r.answers["cmd.shells"] = value.ListOf(name)
	shell := exec.Command(name)
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		shell.Process.Kill()
		shell.Wait()
		if r.held != nil {
			r.held.Close()
		}
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		got, err := r.news("sh", value.ListOf())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range got {
			if strings.HasSuffix(d.Str("cmd"), "/env") {
				if want := fmt.Sprintf("['env', 'a b'] %d", shell.Process.Pid); value.Repr(d.At("args"))+" "+d.Str("tag") != want || d.Str("user") == "" {
					t.Errorf("%s, want %s", value.Repr(d), want)
				}
				return
			}
		}
		if time.Now().After(end) {
			t.Fatal("no command was reported")
		}
		if _, err := io.WriteString(in, "env 'a b' 2>/dev/null\n"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNewBeaconsWithWrongSettings(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		kind   string
		config any
	}{
		{"log", nil}, {"log", value.ListOf(dict("file", int64(1)))}, {"log", value.ListOf(dict("file", "/x"), dict("tags", "y"))},
		{"log", value.ListOf(dict("file", "/x"), dict("tags", dict("t", dict("regex", "("))))},
		{"wtmp", value.ListOf(dict("users", "anna"))}, {"wtmp", value.ListOf(dict("defaults", value.ListOf()))}, {"btmp", value.ListOf(dict("groups", "x"))},
		{"wtmp", value.ListOf(dict("users", dict("anna", dict("time_range", "8am"))))},
		{"wtmp", value.ListOf(dict("users", dict("anna", dict("time_range", dict("start", "8am")))))},
		{"wtmp", value.ListOf(dict("defaults", dict("time_range", dict("start", "8am", "end", "soon"))))},
		{"network_info", nil}, {"network_info", value.ListOf(dict("interfaces", dict("lo", nil)))},
		{"network_info", value.ListOf(dict("interfaces", dict("lo", dict("bytes", int64(1)))))},
		{"network_info", value.ListOf(dict("interfaces", dict("lo", dict("errin", "many"))))},
		{"network_info", value.ListOf(dict("interfaces", dict("lo", dict("type", "less", "errin", int64(1)))))},
		{"cert_info", nil}, {"cert_info", value.ListOf(dict("files", value.ListOf(int64(1))))},
		{"cert_info", value.ListOf(dict("files", value.ListOf(dict("/x", dict("notify_days", "soon")))))},
		{"pkg", nil}, {"pkg", value.ListOf(dict("pkgs", "zsh"))}, {"salt_monitor", nil},
		{"salt_monitor", value.ListOf(dict("salt_fun", value.ListOf(int64(1))))},
		{"salt_monitor", value.ListOf(dict("salt_fun", value.ListOf(dict("f.g", dict("args", "x")))))},
		{"salt_monitor", value.ListOf(dict("salt_fun", value.ListOf(dict("f.g", dict("arg", value.ListOf())))))},
	} {
		conf, err := ParseConfig(c.config)
		if err == nil {
			err = r.kinds[c.kind].Validate(conf)
		}
		if err == nil {
			t.Errorf("%s: %s is taken", c.kind, value.Repr(c.config))
		}
	}
}
