package interop

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// mixed starts a Brine master with a minion of each kind, identical except for their ids.
func mixed(t *testing.T) (master *node, brineID, stockID string) {
	t.Helper()
	stockTree(t)
	host := daemontest.Host()
	master = newMaster(t, brine, "boss", host, "auto_accept: true\ntimeout: 15\ngather_job_timeout: 10\n"+
		"nodegroups: {both: 'L@brine,stock', webs: 'G@role:web', nested: 'N@webs and brine'}\n").Start()
	for _, k := range []kind{brine, stock} {
		newMinion(t, k, string(k), []string{host}, "grains: {role: web, deployed: {env: lab, rack: 7}, mixed: [1, two], spaced name: 'a b'}\n"+
			"test.foo: bar\nnested: {opt: 5}\n").Start()
	}
	eventually.Nil(t, stockLimit, "both minions answer", func() error { return master.PingAll(brine, "brine", "stock") })
	return master, "brine", "stock"
}

// alike are calls whose result must not depend on the kind of minion. Masks hide the parts of
// returns that vary.
var alike = []string{
	"test.ping", "test.echo 'a b'", "test.echo [1,{a: null}]", "test.arg 1 two 3.5 true null 2020-01-01 a=1 b=x", "test.kwarg a=1",
	"test.true", "test.false", "test.none", "test.outputter text", "test.retcode 42",
	"test.opts_pkg x", "test.tty x", "test.get_opts no", "test.cross_test test.ping",
	"test.assertion True", "test.assertion False", "test.exception said", "test.stack 1", "test.try_ foo", "test.raise_exception KeyError x",
	"test.arg_type 1 a=2.5", "test.attr_call 1", "test.version",
	"no.such", "test.nope", "no_dot", "cmd.nope", "grains.gte x",
	"test.echo", "test.echo 1 2", "test.echo text=1", "test.echo nope=1", "test.ping 1", "test.ping a=1", "cmd.run", "cmd.run_all", "grains.get",
	"test.arg __kwarg__=True",
	"cmd.run 'echo a; echo b'", "cmd.run 'echo a; echo b' python_shell=True", "cmd.run 'exit 3' python_shell=True", "cmd.run 'nosuchprogram'", "cmd.run true",
	"cmd.run 'printf \"a\\n\\n\"' python_shell=True", "cmd.run ls cwd=/nonexistent", "cmd.run 'echo err >&2' python_shell=True",
	"cmd.run id runas=nosuchuser", "cmd.run 'echo $X' env='{X: 5}' python_shell=True",
	"cmd.run 'cat' stdin='in put'", "cmd.run 'exit 3' success_retcodes=[3] python_shell=True", "cmd.run 'exit 3' ignore_retcode=True python_shell=True",
	"cmd.run 'sleep 5' timeout=1", "cmd.run pwd cwd=/",
	"cmd.run 'echo a' hide_output=True", "cmd.run 'echo a' rstrip=False", "cmd.run 'printf äöü'", "cmd.run_stdout 'echo out; echo err >&2' python_shell=True",
	"cmd.run_stderr 'echo out; echo err >&2' python_shell=True",
	"cmd.run_all 'echo out; echo err >&2; exit 4' python_shell=True", "cmd.run_all nosuchprogram", "cmd.retcode 'exit 5' python_shell=True",
	"cmd.retcode true", "cmd.shell 'echo $((1+2))'", "cmd.which sh", "cmd.which nosuchprogram", "cmd.has_exec sh", "cmd.which_bin '[nosuch, sh]'",
	"cmd.exec_code bash 'echo hi'", "cmd.exec_code_all bash 'echo hi; exit 2'",
	"grains.get role", "grains.get deployed:env", "grains.get deployed:none", "grains.get deployed:none default=x", "grains.get mixed",
	"grains.get 'spaced name'", "grains.item role mixed none", "grains.has_value role", "grains.has_value none", "grains.get none", "grains.fetch role",
	"grains.equals role web",
	"grains.get os", "grains.get os_family", "grains.get kernel", "grains.get kernelrelease", "grains.get osrelease", "grains.get osmajorrelease",
	"grains.get oscodename", "grains.get osfinger", "grains.get osfullname", "grains.get cpuarch", "grains.get osarch", "grains.get num_cpus",
	"grains.get host", "grains.get nodename", "grains.get localhost", "grains.get init", "grains.get virtual", "grains.get username", "grains.get uid",
	"grains.get gid", "grains.get groupname", "grains.get ipv4", "grains.get ip_interfaces", "grains.get hwaddr_interfaces", "grains.get ip4_interfaces",
	"grains.get locale_info", "grains.get shell", "grains.get saltversion", "grains.get saltversioninfo", "grains.get machine_id", "grains.get domain",
	"grains.get fqdn", "grains.get dns", "grains.get lsb_distrib_id", "grains.get manufacturer", "grains.get productname", "grains.get selinux",
	"grains.get systemd", "grains.get ipv6", "grains.get disks", "grains.get ssds", "grains.get efi", "grains.get lsb_distrib_codename",
	"grains.get cpu_model", "grains.get biosversion", "grains.get kernelversion", "grains.get transactional", "grains.get append_domain", "grains.get mdadm",
	"sys.list_functions test", "sys.list_functions grains", "sys.argspec test.echo", "sys.argspec nope", "sys.argspec 'test.ar*'", "sys.argspec grains.get",
	"sys.list_functions nosuch", "sys.reload_modules",
	"config.get test.foo", "config.get nested:opt", "config.get none", "config.get none default", "config.option test.foo", "config.get role",
	"config.valid_fileproto salt://x", "config.valid_fileproto nope", "config.backup_mode", "config.merge test.foo", "config.manage_mode 644",
	"config.dot_vals test",
	"match.glob '*'", "match.glob x", "match.grain role:web", "match.compound 'G@role:web and not x'", "match.list brine,stock", "match.pcre '.*'",
	"match.ipcidr 127.0.0.0/8", "match.grain_pcre 'role:w.*'", "match.pillar a:b", "match.data", "match.filter_by '{\"*\": 1}'",
	"network.netmask 127.0.0.1", "network.is_loopback 127.0.0.1", "network.is_private 10.0.0.1", "network.in_subnet 127.0.0.0/8", "network.ip_addrs",
	"network.interface_ip lo", "network.interface lo", "network.hw_addr lo", "network.get_hostname", "network.calc_net 172.17.0.5/16", "network.subnets",
	"network.interfaces", "network.ipaddrs", "network.ip_addrs6", "network.ifacestartswith lo", "network.reverse_ip 127.0.0.1", "network.get_route 127.0.0.1",
	"network.hwaddr lo", "network.is_multicast 224.0.0.1", "network.iphexval 127.0.0.1", "network.ip_to_host localhost",
	"disk.percent nosuch", "disk.blkid",
	"status.nproc", "status.version",
	"user.info root", "user.info nosuchuser", "user.list_groups root", "user.list_users", "user.getent", "user.primary_group root", "group.info root",
	"group.info nosuch", "group.getent", "shadow.info nosuchuser", "user.exists root",
	"environ.get HOME", "environ.has_value nosuch", "environ.get nosuch", "environ.items x", "timezone.get_offset", "timezone.get_zonecode",
	"locale.get_locale", "locale.avail C.UTF-8",
	"hashutil.digest x", "hashutil.md5_digest x", "hashutil.sha256_digest x", "hashutil.base64_b64encode x", "hashutil.base64_b64decode eA==",
	"hashutil.hmac_signature a b c", "hashutil.digest x nope", "random.hash x sha256", "random.str_encode x", "random.rand_int 5 5",
	"pillar.items", "pillar.get a", "pillar.get a default=b", "pillar.raw", "pillar.item a", "pillar.ls", "pillar.data", "data.items", "data.set k v",
	"data.get k", "data.has_value k", "data.update k w", "data.pop k", "data.dump '{a: 1}'", "data.get a", "data.clear", "mine.get nobody test.ping",
	"saltutil.is_running nosuch", "saltutil.find_job 20200101000000000000", "saltutil.kill_job 20200101000000000000", "saltutil.sync_modules",
	"saltutil.refresh_grains", "saltutil.clear_cache x y", "saltutil.find_cached_job 20200101000000000000", "event.fire '{a: 1}' tag", "log.info x",
	"ps.pgrep nosuchprocess", "ps.psaux nosuchprocess", "ps.boot_time x y z", "ps.num_cpus x", "ps.total_physical_memory", "ps.virtual_memory x",
	"ps.get_pid_list x", "pkg.version bash", "pkg.version nosuchpackage", "pkg.version bash nosuchpackage", "pkg.list_pkgs x=1", "system.get_system_date x y",
	"system.get_computer_name",
}

var (
	masks = []struct {
		find *regexp.Regexp
		with string
	}{
		{regexp.MustCompile(`20\d{18}`), "JID"},
		{regexp.MustCompile(`\b(brine|stock)\b`), "ID"},
		{regexp.MustCompile(`"pid": ?\d+`), `"pid": PID`},
		{regexp.MustCompile(`/tmp/bri\d+`), "ROOT"},
	}
	traceback = regexp.MustCompile(`(?s)exception: Traceback .*\\n(?:[\w.]+: )?([^"\\]+)(?:\\n)?"`)
	class     = regexp.MustCompile(`exception: [\w.]*(?:Error|Exception): `)
	keyError  = regexp.MustCompile(`KeyError: '([^']*)'`)
	argsDoc   = regexp.MustCompile(`(?s)(Passed invalid arguments to .*?\\n).*`)
)

// seen returns a return without the parts that vary: ids, job ids, processes, the middle of
// tracebacks, documentation.
func seen(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	s := string(b)
	s = keyError.ReplaceAllString(s, "$1") // Python quotes the text of this one
	s = traceback.ReplaceAllString(s, `exception: $1"`)
	s = class.ReplaceAllString(s, "exception: ") // which Brine has for some
	s = argsDoc.ReplaceAllString(s, "$1")
	for _, m := range masks {
		s = m.find.ReplaceAllString(s, m.with)
	}
	return s
}

func shellWords(line string) []string {
	var out []string
	for _, m := range regexp.MustCompile(`((?:[^\s']+|'[^']*')+)`).FindAllString(line, -1) {
		out = append(out, strings.ReplaceAll(m, "'", ""))
	}
	return out
}

// TestMixedFleet calls everyday functions on minions of both kinds at once, and expects the same
// results.
func TestMixedFleet(t *testing.T) {
	master, ours, theirs := mixed(t)
	for _, line := range alike {
		args := append([]string{"-L", ours + "," + theirs}, shellWords(line)...)
		// The machine may change between the two answers.
		for try := range 3 {
			rets, err := master.SaltJSON(brine, args...)
			if err != nil {
				t.Errorf("%s: %v", line, err)
				break
			}
			if len(rets) != 2 {
				t.Errorf("%s: not both returned: %v", line, rets)
				break
			}
			a, b := seen(rets[ours]), seen(rets[theirs])
			if a == b {
				break
			}
			if try == 2 {
				t.Errorf("%s:\n brine %s\n stock %s", line, cutText(a), cutText(b))
			}
		}
	}
}

// commands are command lines of salt, salt-run, salt-key and salt-cp. Lines of their output are
// compared in sorted order, since minions return in any order.
var commands = []string{
	"salt * test.ping", "salt -v * test.ping", "salt --show-jid brine test.ping", "salt --summary * test.ping", "salt -v --summary * test.ping",
	"salt -s * test.ping",
	"salt --async brine test.ping", "salt -v --async brine test.ping", "salt --subset=2 * test.ping", "salt * no.such", "salt brine test.echo",
	"salt * test.false", "salt nobody test.ping",
	"salt -E 'b.*' test.ping", "salt -G role:web test.ping", "salt -G deployed:rack:7 test.ping", "salt -P 'role:w(e|x)b' test.ping",
	"salt -N both test.ping", "salt -N nested test.ping", "salt -N nope test.ping",
	"salt -S 127.0.0.0/8 test.ping", "salt -C 'G@role:web and not L@brine' test.ping", "salt -C 'not nobody and ( E@b.* or stock )' test.ping",
	"salt -L brine,stock test.ping", "salt -I a:b test.ping",
	"salt -b 1 * test.ping", "salt -b 50% * test.ping", "salt -b 1 --failhard brine cmd.run 'exit 3' python_shell=True",
	"salt --out=json -s * test.echo x", "salt --out=yaml brine grains.item role mixed", "salt --out=txt brine cmd.run 'echo a; echo b' python_shell=True",
	"salt --out=raw brine test.arg 1 [2,3]",
	"salt --out=pprint brine grains.get deployed", "salt --out=newline_values_only brine grains.get mixed", "salt --out=nope brine test.ping",
	"salt --out=table brine grains.get deployed", "salt --out=quiet brine test.ping", "salt --force-color brine grains.item role mixed none",
	"salt brine test.ping,test.echo , x", "salt brine cmd.run_all 'exit 3' python_shell=True", "salt -d brine test.nope", "salt brine sys.argspec test.echo",
	"salt --preview-target * test.ping",
	"salt", "salt brine", "salt --nope", "salt -E -G x test.ping", "salt -b", "salt -t x * test.ping", "salt --batch-safe-limit=2 * test.ping",
	"salt --no-parse=a brine test.arg a=1 b=2",
	"salt-run manage.up", "salt-run manage.down", "salt-run manage.status", "salt-run manage.alived", "salt-run test.arg 1 a=b", "salt-run no.such",
	"salt-run test.arg --out=json", "salt-run salt.cmd test.ping", "salt-run jobs.lookup_jid 20200101000000000000",
	"salt-run jobs.list_job 20200101000000000000", "salt-run jobs.active", "salt-run cache.grains nobody", "salt-run error.error",
	"salt-run config.get timeout", "salt-run event.send tag {a:1}", "salt-run salt.execute brine test.ping", "salt-run doc.nope",
	"salt-run network.wol 00:11:22:33:44:55", "salt-run manage.list_state", "salt-run manage.present",
	"salt-key -L", "salt-key -l acc", "salt-key -l x", "salt-key -f brine", "salt-key -F --out=json", "salt-key -a nobody", "salt-key -d nobody -y",
	"salt-key --out=yaml", "salt-key -p nobody",
}

// hints are what Brine says on stderr where Salt says nothing, by command.
var hints = map[string]string{"salt-key -p nobody": "\nThe key glob 'nobody' does not match any keys."}

// Lines that Salt's programs print about themselves.
var noise = regexp.MustCompile(`(?m)^(# )?(\[ERROR   \] )?(Task was destroyed|task: <Task).*\n?|^\[WARNING \] .*\n?|^Exception ignored.*\n?|^Future ` +
	`exception was never.*\n(TimeoutError.*\n)?(future: .*\n?)?`)

// shown returns the output of a program without the parts that vary.
func shown(text string) string {
	text = noise.ReplaceAllString(text, "")
	text = regexp.MustCompile(`20\d{18}`).ReplaceAllString(text, "JID")
	text = regexp.MustCompile(`(pid['"]?: ?\n? *)\d+`).ReplaceAllString(text, "${1}PID")
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestStockCommandLine runs the same commands with Salt's command line and ours, at one master with
// minions of both kinds.
func TestStockCommandLine(t *testing.T) {
	master, _, _ := mixed(t)
	usage := regexp.MustCompile(`(?s)^.*\n(\S+: error: )`)
	for _, line := range commands {
		words := shellWords(line)
		type result struct {
			out, errs string
			code      int
		}
		var got [2]result
		for i, k := range []kind{brine, stock} {
			r := &got[i]
			r.out, r.errs, r.code = master.Run(k, words[0], words[1:]...)
			if r.code == 64 || r.code == 42 { // help is our own
				r.errs = usage.ReplaceAllString(r.errs, "$1")
				r.out = ""
			}
			r.out, r.errs = shown(r.out), shown(r.errs)
			if k == brine {
				r.errs = strings.Replace(r.errs, hints[line], "", 1)
			}
		}
		if got[0] != got[1] {
			t.Errorf("%s:\n brine %+v\n stock %+v", line, got[0], got[1])
		}
	}
}

func cutText(s string) string {
	if len(s) > 400 {
		return s[:400] + fmt.Sprintf("… (%d bytes)", len(s))
	}
	return s
}
