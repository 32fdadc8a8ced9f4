package salt

import (
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"brine/internal/call/client/clienttest"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// TestRequest checks what is sent to the master.
func TestRequest(t *testing.T) {
	m := clienttest.Start(t, clienttest.Options{Minions: fleet()})
	for _, c := range []struct{ args, want string }{
		{"alpha test.ping", "{'cmd': 'publish', 'tgt': 'alpha', 'fun': 'test.ping', 'arg': [], 'tgt_type': 'glob', 'ret': '', 'jid': '', " +
			"'kwargs': {'show_timeout': True, 'show_jid': False, 'delimiter': ':'}}"},
		{"alpha cmd.run echo cwd=/tmp python_shell=true 2 --return a,b --hide-timeout --show-jid --metadata {t:~1}",
			"{'cmd': 'publish', 'tgt': 'alpha', 'fun': 'cmd.run', 'arg': ['echo', 2, {'__kwarg__': True, 'cwd': '/tmp', 'python_shell': True}], " +
				"'tgt_type': 'glob', " +
				"'ret': 'a,b', 'jid': '', 'kwargs': {'show_timeout': False, 'show_jid': True, 'delimiter': ':', 'metadata': {'t': 1}}}"},
		{"-L alpha,beta test.arg 20261121040156486143 --return_config c --return_kwargs {a:~1} --module-executors [splay] --executor-opts {splaytime:~2}",
			"{'cmd': 'publish', 'tgt': ['alpha', 'beta'], 'fun': 'test.arg', 'arg': ['20261121040156486143'], 'tgt_type': 'list', 'ret': '', 'jid': '', " +
				"'kwargs': {'show_timeout': True, 'show_jid': False, 'delimiter': ':', 'ret_config': 'c', 'ret_kwargs': {'a': 1}, " +
				"'module_executors': ['splay'], 'executor_opts': {'splaytime': 2}}}"},
		{"-I alpha*:x test.ping,test.echo , 5 --delimiter |",
			"{'cmd': 'publish', 'tgt': 'alpha*:x', 'fun': ['test.ping', 'test.echo'], 'arg': [[], [5]], 'tgt_type': 'pillar', 'ret': '', 'jid': '', " +
				"'kwargs': {'show_timeout': True, 'show_jid': False, 'delimiter': '|'}}"},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "~", " ")
		}
		before := len(m.Loads())
		runSalt(t.Context(), m, "", append(args, "--async")...)
		loads := m.Loads()
		if len(loads) != before+1 {
			t.Errorf("%s: %d requests", c.args, len(loads)-before)
			continue
		}
		l := loads[before]
		keys := l.Keys()
		if want := []any{"cmd", "tgt", "fun", "arg", "key", "tgt_type", "ret", "jid", "kwargs", "user"}; !reflect.DeepEqual(keys, want) {
			t.Errorf("%s: keys %v", c.args, keys)
		}
		l.Delete("key")
		l.Delete("user")
		if got := value.Repr(l); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.args, got, c.want)
		}
	}
}

func TestSeveral(t *testing.T) {
	for _, c := range []struct{ funs, args, want string }{
		{"a,b,c", "1 , , 3", "[[1], [], [3]]"}, {"a,b", "x,y", "[['x'], ['y']]"}, {"a,b", "x, y", "[['x'], ['y']]"}, {"a,b", "x ,y", "[['x'], ['y']]"},
		{"a,b", "1 2 , k=v", "[[1, 2], [{'__kwarg__': True, 'k': 'v'}]]"}, {"a,b", ",", "[[], []]"},
		{"a,b", "1", "Cannot execute compound command without defining all arguments."},
		{"a,b", "1 , 2 , 3", "Cannot execute compound command with more arguments than commands."},
		{"a,b", "", "Cannot execute compound command without defining all arguments."},
	} {
		o := options{Separator: ","}
		got := ""
		if parsed, err := o.parse(append([]string{"*", c.funs}, strings.Fields(c.args)...)); err != nil {
			got = err.Error()
		} else {
			got = value.Repr(parsed.arg)
		}
		if got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.funs, c.args, got, c.want)
		}
	}
}

func FuzzParse(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add("* test.ping,test.echo , x", ",")
	f.Add("-d x", "::")
	f.Add("a b,c, k={a: 1 #", "")
	f.Fuzz(func(t *testing.T, line, sep string) {
		o := options{Separator: sep}
		c, err := o.parse(strings.Fields(line))
		if err == nil && (c.target == nil || c.fun == nil || c.arg == nil) {
			t.Errorf("%q is neither right nor wrong", line)
		}
	})
}

func TestDocArgs(t *testing.T) {
	for in, want := range map[string]string{"": "* sys.doc", "a": "a sys.doc", "a test": "a sys.doc test", "a sys.doc test": "a sys.doc test"} {
		if got := strings.Join(docArgs(strings.Fields(in)), " "); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestParseTarget(t *testing.T) {
	for in, want := range map[string]string{"a, b,c": "['a', 'b', 'c']", "a  b": "['a', 'b']", "": "[]"} {
		if got := value.Repr(parseTarget("list", in)); got != want {
			t.Errorf("%q: %s", in, got)
		}
	}
}

func TestOtherModes(t *testing.T) {
	m := clienttest.Start(t, clienttest.Options{Minions: fleet()})
	for _, c := range []struct {
		args string
		want result
	}{
		{"none test.ping --out=json", result{2, "No minions matched the target. No command was sent, no jid was assigned.\n{}\n",
			"ERROR: No return received\n"}},
		{"none test.ping --out=yaml", result{2, "No minions matched the target. No command was sent, no jid was assigned.\n{}\n",
			"ERROR: No return received\n"}},
		{"none test.ping --out=txt", result{2, "No minions matched the target. No command was sent, no jid was assigned.\n", "ERROR: No return received\n"}},
		{"--async none test.ping", result{0, "No minions matched the target. No command was sent, no jid was assigned.\nExecuted command with job ID: 0\n",
			""}},
		{"-b x * test.ping", result{1, "Invalid batch data sent: x\nData must be in the form of %10, 10% or 3\n", ""}},
		{"-b 1 none test.ping", result{0, "No minions matched the target. No command was sent, no jid was assigned.\nNo minions matched the target.\n", ""}},
		{"-s -b 1 -L alpha,beta test.ping --out=txt", result{0, "alpha: True\nbeta: True\n", ""}},
		{"--preview-target none*", result{2, "", "ERROR: No return received\n"}},
		{"* a b -d c", result{64, "",
			"Usage: salt [options] '<target>' <function> [arguments]\n\nsalt: error: You can only get documentation for one method at one time.\n"}},
	} {
		if got := runSalt(t.Context(), m, "", strings.Fields(c.args)...); got != c.want {
			t.Errorf("%s\ngot  %+v\nwant %+v", c.args, got, c.want)
		}
	}
	got := runSalt(t.Context(), m, "", "--config-dump")
	if got.code != 0 || !strings.Contains(got.stdout, "\ninterface: 127.0.0.1\n") || !strings.Contains(got.stdout, "\ngather_job_timeout: 0.3\n") {
		t.Errorf("--config-dump: %+v", got)
	}
	got = runSalt(t.Context(), m, "", "-d", "-L", "alpha,beta", "test.ping")
	if got.code != 0 || !strings.HasPrefix(got.stdout, "test.ping:\n\n    Say that the minion is up") || !strings.HasSuffix(got.stdout, "    \n\n") {
		t.Errorf("-d: %+v", got)
	}
	os.WriteFile(m.Dir+"/master", []byte("interface: [unfinished"), 0o600)
	if got := runSalt(t.Context(), m, "", "*", "test.ping"); got.code != 1 || !strings.HasPrefix(got.stderr, "salt: error: "+m.Dir+"/master:") {
		t.Errorf("a broken configuration: %+v", got)
	}
}

func TestPeers(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1199 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:1199 0202000A:D2F0 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 20 4 30 10 -1
   2: 0100007F:1199 0302000A:D2F0 06 00000000:00000000 00:00000000 00000000     0        0 3 1 0 20 4 30 10 -1
   3: 0100007F:0016 0402000A:D2F0 01 00000000:00000000 00:00000000 00000000     0        0 4 1 0 20 4 30 10 -1
   4: 0000000000000000FFFF00000100007F:1199 0000000000000000FFFF00000502000A:D2F0 01 0:0 00:0 0 0 0 5
   5: B80D0120000000000000000001000000:1199 B80D0120000000000000000002000000:D2F0 01 0:0 00:0 0 0 0 5
   6: short
`
	peers := map[netip.Addr]bool{}
	addPeers(peers, strings.NewReader(table), 0x1199)
	var got []string
	for a := range peers {
		got = append(got, a.String())
	}
	slices.Sort(got)
	if want := []string{"10.0.2.2", "10.0.2.5", "2001:db8::2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNotConnected(t *testing.T) {
	minions := fleet()
	minions[2].Grains = value.DictOf("ipv4", value.ListOf("127.0.0.1", "198.51.100.9"))
	m := clienttest.Start(t, clienttest.Options{Minions: minions, JIDs: []string{"20261121040156486143"}})
	p := &program{peers: map[netip.Addr]bool{netip.MustParseAddr("198.51.100.1"): true}}
	if got := runProgram(t, p, m, "-v", "--summary", "gamma", "test.ping"); !strings.Contains(got.stdout,
		"gamma:\n    Minion did not return. [Not connected]\n") ||
		!strings.Contains(got.stdout, "\nMinions not connected: gamma\n") {
		t.Errorf("got %+v", got)
	}
	p.peers[netip.MustParseAddr("198.51.100.9")] = true
	if got := runProgram(t, p, m, "gamma", "test.ping"); !strings.Contains(got.stdout, "gamma:\n    Minion did not return. [No response]\n") {
		t.Errorf("got %+v", got)
	}
}
