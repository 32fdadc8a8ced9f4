package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/client/clienttest"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// prepare creates keys in all states on the master, and a second master whose minions return states
// and pillar.
func (f *field) prepare(t *testing.T) {
	pki := f.master.Path("etc/salt/pki/master")
	pub, err := os.ReadFile(pki + "/minions/beta")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"minions_pre/pending", "minions_rejected/refused", "minions_denied/denied"} {
		f.write(t, filepath.Join(pki, path), string(pub))
	}
	state := func(n int, id string, ok bool, changes any) *value.Dict {
		return value.DictOf("name", id, "changes", changes, "result", ok, "comment", "said", "__id__", id, "__run_num__", n, "__sls__", "x",
			"start_time", "10:00:00.000000", "duration", 1.5)
	}
	states := value.DictOf("test_|-same_|-same_|-nop", state(0, "same", true, value.NewDict(0)), "test_|-new_|-new_|-nop",
		state(1, "new", true, value.DictOf("a", "b")))
	answer := func(fun string, args []any, _ *value.Dict) clienttest.Return {
		if fun == "state.apply" {
			return clienttest.Return{Value: states, Retcode: int64(0), Out: "highstate"}
		}
		return clienttest.Return{Value: true, Retcode: int64(0)}
	}
	pillar := func(role string) *value.Dict { return value.DictOf("role", role) }
	f.fake = clienttest.Start(t, clienttest.Options{
		Minions: []clienttest.Minion{{ID: "one", Pillar: pillar("web"), Grains: value.DictOf("ipv4", value.ListOf("10.0.0.1")), Run: answer},
			{ID: "two", Pillar: pillar("db"), Grains: value.DictOf("ipv4", value.ListOf("10.0.0.2")), Run: answer},
			{ID: "down", Pillar: pillar("none"), Grains: value.DictOf("ipv4", value.ListOf("10.9.0.1"))}},
		Runner: func(load *value.Dict, _ func(string, *value.Dict)) *value.Dict {
			return value.DictOf("return", value.DictOf("outputter", "highstate", "data", value.DictOf("one", states)), "success", true, "fun", "x", "user",
				"u")
		},
	})
}

func (f *field) write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// files returns a function that writes files in the directory of the run. pairs are names and
// contents.
func files(pairs ...string) func(*testing.T, *ran) {
	return func(t *testing.T, r *ran) {
		// Each run has a separate address, since runs are concurrent.
		fill := strings.NewReplacer("DIR", r.dir, "HOST", daemontest.Host())
		for i := 0; i < len(pairs); i += 2 {
			new(field).write(t, filepath.Join(r.dir, pairs[i]), fill.Replace(pairs[i+1]))
		}
	}
}

// pem is a public key.
var pem = func() string {
	k, err := crypt.GenerateKey(2048)
	if err != nil {
		panic(err)
	}
	return string(k.Public().PEM())
}()

func allEffects() map[string]effect {
	all := map[string]effect{}
	add := func(program string, effects map[string]effect) {
		for o, e := range effects {
			all[program+" "+o] = e
		}
	}
	for _, p := range []string{"salt", "salt-key", "salt-run", "salt-call", "salt-cp", "salt-master", "salt-minion", "salt-api", "salt-syndic", "demo", "ha",
		"cluster", "witness", "console", "python", "man", "migrate", "doc", "self-check", "completion"} {
		add(p, map[string]effect{
			"--version":         {line: "@ stray --none", out: `^` + p + ` 3007\.10 \(Brine .*\)\n$`},
			"--versions-report": {line: "@ stray", out: `Salt Version:\n.*Brine Version:`},
			"--help":            {line: "@ stray --none", out: `^Usage: ` + p + `.*-h, --help`},
		})
	}
	for p, line := range map[string]string{
		"salt": "alpha test.echo word", "salt-run": "test.arg word", "salt-call": "test.echo word", "salt-key": "-l acc",
		"salt-cp": "alpha MASTER/master DIR/to",
	} {
		add(p, clientEffects(p, line))
	}
	add("salt", saltEffects())
	add("salt-run", runEffects())
	add("salt-call", callEffects())
	add("salt-key", keyEffects())
	add("salt-cp", copyEffects())
	add("salt-master", daemonEffects("salt-master"))
	add("salt-minion", daemonEffects("salt-minion"))
	add("salt-api", daemonEffects("salt-api"))
	add("salt-syndic", daemonEffects("salt-syndic"))
	for _, o := range []string{"config-dir", "out", "cluster", "fault", "minions", "away", "harm", "mend", "target"} {
		all["ha --"+o] = effect{elsewhere: "internal/cli/ha"}
	}
	add("migrate", migrateEffects())
	add("cluster", clusterEffects())
	add("witness", map[string]effect{"--config-dir": {line: "@", value: "DIR/conf", before: files("conf/witness", "cluster_id: main\n"), code: 1,
		err: `cluster_witness_secret is not set`}})
	for _, o := range []string{"config-dir", "port", "log-level", "log-file", "log-file-level"} {
		all["console --"+o] = effect{elsewhere: "test/console"}
	}
	add("man", map[string]effect{"--dir": {line: "@", value: "DIR/pages", file: "pages/salt-key.1", holds: `\.SH NAME`}})
	for _, o := range []string{"config-dir", "root"} {
		all["self-check --"+o] = effect{elsewhere: "internal/cli/selfcheck"}
	}
	add("doc", map[string]effect{"--dir": {line: "@", value: "DIR/pages", file: "pages/states/cmd.md", holds: `cmd\.run`}})
	return all
}

// clusterEffects are the effects of the options of brine cluster.
func clusterEffects() map[string]effect {
	init := "init --id 127.0.0.1"
	fresh := files("conf/master", "pki_dir: DIR/pki\n")
	return map[string]effect{
		"--config-dir": {elsewhere: "test/cluster"}, // without it, it would change the configuration of the other masters' master
		"--id":         {line: "-c DIR/conf init @", value: "127.0.0.1", before: fresh, file: "conf/master.d/cluster.conf", holds: `id: 127\.0\.0\.1`},
		"--name": {line: "-c DIR/conf " + init + " @", value: "former", before: fresh, file: "conf/master.d/cluster.conf",
			holds: `cluster_id: former`},
		"--secret": {elsewhere: "test/cluster"},
		"--secret-file": {line: "-c DIR/conf " + init + " @", value: "DIR/given", before: files("conf/master", "pki_dir: DIR/pki\n", "given",
			"0123456789abcdef0123456789abcdef\n"), file: "conf/master.d/cluster.conf", holds: `cluster_secret: 0123456789abcdef0123456789abcdef`},
		"--force":       {elsewhere: "test/cluster"},
		"--keep-secret": {elsewhere: "test/cluster"},
		"--sure":        {elsewhere: "test/cluster"},
		"--fingerprint": {elsewhere: "test/cluster"},
		"--pki-dir":     {elsewhere: "test/cluster"},
		"--cache-dir":   {elsewhere: "test/cluster"},
		"--out":         {elsewhere: "test/cluster"},
	}
}

// migrateEffects are the effects of the options of brine migrate, which copies the keys of the
// master.
func migrateEffects() map[string]effect {
	line := "keys --from MASTER/etc/salt/pki/master --to DIR/to"
	all := map[string]effect{"--out": {line: "@ " + line, value: "json", out: `^[{].*[}]\n$`}}
	all["--config-dir"] = effect{line: "@ keys --to DIR/to", value: "DIR/conf", before: files("conf/master", "pki_dir: DIR/pki\n"), code: 1,
		err: `DIR/pki is not a directory of keys`}
	all["--from"] = effect{line: "keys --to DIR/to @", value: "DIR/none", code: 1, err: `DIR/none is not a directory of keys`}
	all["--to"] = effect{line: "keys --from MASTER/etc/salt/pki/master @", value: "DIR/to", file: "to/minions/alpha", holds: `BEGIN PUBLIC KEY`}
	all["--from-config"] = effect{line: "keys --to DIR/to @", value: "DIR/none", code: 1, err: `DIR/none is not a directory with the configuration of a master`}
	all["--to-config"] = effect{line: "keys --from MASTER/etc/salt/pki/master @", value: "DIR/none", code: 1,
		err: `DIR/none is not a directory with the configuration of a master`}
	all["--bank"] = effect{line: "cache --from localfs:DIR/a --to localfs:DIR/b --out=json @", value: "other",
		before: files("a/other/k.p", "\x01", "a/minions/m/data.p", "\x01"), file: "b/other/k.p", holds: "\x01"}
	all["--key-pair"] = effect{line: line + " @", value: "cluster", file: "to/cluster.pem", holds: `PRIVATE KEY`}
	all["--dry-run"] = effect{line: "@ " + line + " --out=json", out: `"to_copy": [1-9]`}
	return all
}

// clientEffects are the effects of the options that all client programs have. line is a command
// that prints a little data in the form nested.
func clientEffects(program, line string) map[string]effect {
	all := map[string]effect{
		"--config-dir":      {line: "@ " + line, value: "DIR/none", err: `^WARNING: CONFIG 'DIR/none' directory does not exist\.`},
		"--saltfile":        {line: "@ " + line, value: "DIR/presets", before: files("presets", program+": {output: json}\n"), out: `^[{].*[}]\n$`},
		"--log-level":       {line: "@ " + line, value: "all", err: `\[(DEBUG|TRACE) *\]`},
		"--log-file":        {line: "@ --log-file-level=debug " + line, value: "DIR/log", file: "log", holds: `\[DEBUG *\]`},
		"--log-file-level":  {line: "--log-file=DIR/log @ " + line, value: "all", file: "log", holds: `\[(DEBUG|TRACE) *\]`},
		"--out":             {line: "@ " + line, value: "json", out: `^[{].*[}]\n$`},
		"--out-indent":      {line: "--out=json @ " + line, value: "-1", out: `^[{][^\n]*[}]\n$`},
		"--out-file":        {line: "@ " + line, value: "DIR/out", out: `^$`, file: "out", holds: `.`},
		"--out-file-append": {line: "--out-file=DIR/out @ " + line, before: files("out", "before\n"), file: "out", holds: `^before\n.`},
		"--no-color":        {line: "@ " + line, tty: true, out: `^[^\x1b]+$`},
		"--force-color":     {line: "@ " + line, out: "\x1b"},
		"--hard-crash":      {},
		"--state-output":    refused("@ "+line, "terse"),
		"--state-verbose":   refused("@ "+line, "False"),
		"--no-parse":        {},
		"--args-stdin":      {},
		"--strict-exit":     {},
		"--auth":            {},
		"--make-token":      {},
		"--username":        {},
		"--password":        {},
		"--delimiter":       {},
		"--timeout":         {},
	}
	if program != "salt-key" && program != "salt" && program != "salt-run" { // which answers test.arg itself
		e := all["--config-dir"]
		e.code = 1 // there is no master
		all["--config-dir"] = e
	}
	maps.DeleteFunc(all, func(_ string, e effect) bool { return e.line == "" })
	return all
}

// eauth are the effects of the options for external authentication, of which the masters here have
// none.
func eauth(line string) map[string]effect {
	return map[string]effect{
		"--auth": {line: "@ --username=who --password=x " + line, value: "pam",
			out: `uthentication (failure of type "eauth" )?(occurred for user who|error)`},
		"--make-token": {line: "@ --auth=pam --username=who --password=x " + line, err: `Authentication failed`, code: -1},
		"--username":   {line: "--auth=pam @ --password=x " + line, value: "who", err: `^$`},
		"--password":   {line: "--auth=pam --username=who @ " + line, value: "x", err: `^$`},
	}
}

func saltEffects() map[string]effect {
	all := map[string]effect{
		"--hard-crash": {line: "-v @ alpha test.sleep 20", cut: "Executing job with jid",
			err: `Exiting gracefully on Ctrl-c\nThis job's jid is: \d{20}\n.*jobs.lookup_jid \d{20}`, code: 1},
		"--strict-exit":      {line: "@ alpha test.false", code: 1},
		"--no-parse":         {line: "@ alpha test.kwarg a=1 b=1 --out=json --out-indent=-1", value: "a", out: `"a": "1".*"b": 1`},
		"--args-stdin":       {line: "@ alpha test.echo", stdin: "more words\n--out=txt\n", out: `^alpha: more words\n$`},
		"--module-executors": {line: "@ alpha test.ping", value: "nope", out: `Executor 'nope' is not available`, code: 1},
		"--executor-opts":    {value: "{splaytime: 0}", check: told("salt", "@ one test.ping", "executor_opts", "{'splaytime': 0}")},
		"--timeout":          {line: "-v @ alpha test.sleep 3", value: "60", out: `True`, not: `Execution is still running`},
		"--static":           {line: "@ alpha,beta -L --out=json test.ping", out: `^\{\n    "\w+": true,\n    "\w+": true\n\}\n$`},
		"--progress":         {line: "@ alpha test.ping", tty: true, err: `\[#+\] 1/1`},
		"--failhard": {line: "-b 1 @ -L alpha,beta cmd.run 'exit 3'", code: 3,
			err: `Minion \w+ returned with non-zero exit code. Batch run stopped due to failhard`},
		"--async":        {line: "@ alpha test.ping", out: `^Executed command with job ID: \d{20}\n$`},
		"--subset":       {line: "@ -L alpha,beta test.ping", value: "1", out: `^\w+:\n    True\n$`},
		"--verbose":      {line: "@ alpha test.ping", out: `^Executing job with jid \d{20}\n-{43}\n\nalpha`},
		"--hide-timeout": {line: "-c FAKE @ -L one,down test.ping", out: `^one:\n    True\n$`},
		"--show-timeout": {line: "-c FAKE --saltfile=DIR/presets @ -L one,down test.ping", before: files("presets", "salt: {show_timeout: False}\n"),
			out: `down:\n    Minion did not return`, code: 1},
		"--show-jid":         {line: "@ alpha test.ping", out: `^jid: \d{20}\nalpha`},
		"--batch":            {line: "@ -L alpha,beta test.ping", value: "1", out: `\nExecuting run on \['\w+'\]\n.*\nExecuting run on \['\w+'\]\n`},
		"--batch-wait":       {check: batchWaits, value: "4"},
		"--batch-safe-limit": {line: "@ -L alpha,beta test.ping", value: "2", out: `^\nNOTICE: Too many minions targeted, switching to batch execution.\n`},
		"--batch-safe-size":  {line: "--batch-safe-limit=2 @ -L alpha,beta test.ping", value: "1", out: `Executing run on \['\w+'\]\n`},
		"--return":           {value: "nope", check: told("salt", "@ one test.ping", "ret", "nope")},
		"--return_config":    {value: "other", check: told("salt", "@ one test.ping", "ret_config", "other")},
		"--return_kwargs":    {value: "{a: 1}", check: told("salt", "@ one test.ping", "ret_kwargs", "{'a': 1}")},
		"--doc":              {line: "@ alpha test.ping", out: `^test\.ping:\n`},
		"--args-separator":   {line: "@ alpha test.echo,test.echo a :: b", value: "::", out: `test.echo:\n        b\n`},
		"--site-summary":     {check: told("salt", "@ one test.ping", "site_summary", "True")},
		"--summary":          {line: "@ alpha test.ping", out: `Summary\n-+\n# of minions targeted: 1\n`},
		"--metadata":         {value: "{origin: here}", check: told("salt", "@ one test.ping", "metadata", "{'origin': 'here'}")},
		"--expire":           {value: "10m", check: told("salt", "@ one test.ping", "expire", "600")},
		"--output-diff":      {line: "-c FAKE @ one state.apply", out: `ID: new`, not: `ID: same`},
		"--config-dump":      {line: "@", out: `(^|\n)publish_port: 24505\n`},
		"--preview-target":   {line: "@ -L alpha,beta", out: `^- alpha\n- beta\n$`},
		"--state-output":     {line: "-c FAKE @ one state.apply", value: "terse", out: `  Name: same - Function: test.nop - Result: Clean`},
		"--state-verbose":    {line: "-c FAKE @ one state.apply", value: "False", out: `ID: new`, not: `ID: same`},
		"--hosts":            refused("@ alpha test.ping", ""),
		"--pcre":             {line: "@ 'al(pha|bert)' test.ping", out: `^alpha:\n    True\n$`},
		"--list":             {line: "@ alpha,beta test.ping", out: `alpha:\n    True\n`},
		"--grain":            {line: "@ role:we* test.ping", out: `^alpha:\n    True\n$`},
		"--grain-pcre":       {line: "@ 'role:(web|x)' test.ping", out: `^alpha:\n    True\n$`},
		"--nodegroup":        {line: "@ nosuch test.ping", out: `^Node group nosuch unavailable in `},
		"--range":            {line: "@ alpha test.ping", out: `^No minions matched the target`, code: 2},
		"--compound":         {line: "@ 'alpha and G@role:web and not beta' test.ping", out: `^alpha:\n    True\n$`},
		"--pillar":           {line: "-c FAKE @ role:w* test.ping", out: `^one:\n    True\n$`},
		"--pillar-pcre":      {line: "-c FAKE @ 'role:(d|x)b' test.ping", out: `^two:\n    True\n$`},
		"--ipcidr":           {line: "-c FAKE @ 10.0.0.0/29 test.ping", out: `one:\n    True\n`},
		"--delimiter":        {line: "@ -G 'deployed|env|lab' test.ping", value: "|", out: `alpha:\n    True\n`},
	}
	maps.Copy(all, eauth("alpha test.ping"))
	e := all["--make-token"]
	e.code = 2
	all["--make-token"] = e
	return all
}

func runEffects() map[string]effect {
	all := map[string]effect{
		"--hard-crash":       {line: "--show-jid @ test.sleep 5", cut: "jid: ", err: `Exiting gracefully on Ctrl-c\n`, code: 1},
		"--strict-exit":      {line: "@ no.such", code: 255},
		"--no-parse":         {line: "@ test.arg a=1 b=1 --out=json --out-indent=-1", value: "a", out: `"a": "1".*"b": 1`},
		"--args-stdin":       {line: "@ test.arg", stdin: "more words\n--out=json\n", out: `^\{.*"more words"`},
		"--timeout":          {value: "7", check: told("salt-run", "@ salt.execute none test.ping", "timeout", "7")},
		"--doc":              {line: "@ test.arg", out: `^test\.arg:\n`},
		"--async":            {line: "@ test.arg", out: `^$`, err: `Running in asynchronous mode.*tag salt/run/\d{20}`},
		"--quiet":            {line: "@ test.arg", out: `^$`},
		"--skip-grains":      {line: "@ salt.cmd grains.get kernel", out: `^\n?$`},
		"--cluster":          {elsewhere: "test/cluster"},
		"--repeatable":       {elsewhere: "test/cluster"},
		"--jid":              {line: "@ --show-jid test.arg", value: "20200101000000000000", out: `^jid: 20200101000000000000\n`},
		"--show-jid":         {line: "@ test.arg", out: `^jid: \d{20}\n`},
		"--enable-profiling": refused("@ test.arg", ""),
		"--profiling-path":   refused("@ test.arg", "DIR"),
		"--state-output":     {line: "-c FAKE @ some.fun", value: "terse", out: `  Name: same - Function: test.nop - Result: Clean`},
		"--state-verbose":    {line: "-c FAKE @ some.fun", value: "False", out: `ID: new`, not: `ID: same`},
	}
	maps.Copy(all, eauth("test.arg"))
	e := all["--make-token"]
	e.code = 0
	all["--make-token"] = e
	return all
}

func callEffects() map[string]effect {
	return map[string]effect{
		"--hard-crash":           {line: "--local -l debug @ test.sleep 20", cut: "[DEBUG", err: `Exiting gracefully on Ctrl-c\n`, code: 1},
		"--strict-exit":          {line: "@ test.false", code: 1},
		"--no-parse":             {line: "@ test.kwarg a=1 b=1 --out=json --out-indent=-1", value: "a", out: `"a": "1".*"b": 1`},
		"--args-stdin":           {line: "@ test.echo", stdin: "more words\n--out=txt\n", out: `^local: more words\n$`},
		"--grains":               {line: "@", out: `\n    role:\n        web\n`},
		"--doc":                  {line: "@ test.ping", out: `^test\.ping:\n`},
		"--local":                {line: "@ -c DIR test.ping", before: files("minion", "root_dir: DIR\nid: alone\nmaster: 127.0.0.1:1\n"), out: `True`},
		"--master":               {line: "@ --local config.get master --out=txt", value: "elsewhere", out: `elsewhere`},
		"--id":                   {line: "@ --local config.get id --out=txt", value: "other", out: `^local: other\n$`},
		"--retcode-passthrough":  {line: "@ cmd.run 'exit 7'", code: 7},
		"--metadata":             {line: "@ test.ping", out: `\n    jid:\n        \d{20}\n`},
		"--no-return-event":      {check: jobRecorded("test.version", "test.rand_str", "", false)},
		"--skip-grains":          {line: "@ grains.get role --out=json --out-indent=-1", out: `^\{"local": ""\}\n$`},
		"--refresh-grains-cache": {line: "-c DIR @ --local grains.get role --out=txt", before: cachedGrains, out: `^local: new\n$`},
		"--timeout":              {line: "@ --local config.get auth_timeout --out=txt", value: "7", out: `^local: 7\n$`},
		"--set-metadata":         {value: "{origin: there}", check: jobRecorded("test.versions_information", "test.random_hash", `"origin": "there"`, true)},
		"--cachedir":             {line: "@ --local config.get cachedir --out=txt", value: "DIR/c", out: `DIR/c\n$`},
		"--file-root":            {line: "@ --local config.get file_roots --out=json --out-indent=-1", value: "DIR", out: `"base": \["DIR"\]`},
		"--pillar-root":          {line: "@ --local config.get pillar_roots --out=json --out-indent=-1", value: "DIR", out: `"base": \["DIR"\]`},
		"--module-executors":     {line: "@ test.ping", value: "nope", err: `Executor 'nope' is not available`, code: 1},
		"--executor-opts": {line: "-l debug --module-executors=splay @ test.ping", cut: "delaying job (splay)", value: "{splaytime: 0}",
			err: `splaytime must be a positive integer`, code: 1},
		"--proxyid":          refused("@ test.ping", "p"),
		"--states-dir":       refused("@ test.ping", "DIR"),
		"--module-dirs":      refused("@ test.ping", "DIR"),
		"--return":           {line: "@ --local test.ping", value: "nosuch", out: `True`, err: `there is no returner "nosuch"`},
		"--enable-profiling": refused("@ test.ping", ""),
		"--profiling-path":   refused("@ test.ping", "DIR"),
		"--output-diff":      {line: "@ --local state.single test.nop name=x", out: `Summary for local`, not: `ID: x`},
		"--state-output":     {line: "@ --local state.single test.nop name=x", value: "terse", out: `  Name: x - Function: test.nop - Result: Clean`},
		"--state-verbose":    {line: "@ --local state.single test.nop name=x", value: "False", out: `Summary for local`, not: `ID: x`},
	}
}

func copyEffects() map[string]effect {
	to := " MASTER/master DIR/to"
	return map[string]effect{
		"--hard-crash":     {line: "-t 20 -L alpha,gamma @ MASTER/master DIR/to -l debug", cut: "[DEBUG", err: `Exiting gracefully on Ctrl-c\n`, code: 1},
		"--timeout":        {value: "7", check: told("salt-cp", "@ one MASTER/master DIR/to", "to", "7")},
		"--hosts":          refused("@ alpha"+to, ""),
		"--pcre":           {line: "@ 'al(pha|bert)'" + to, out: `^alpha:\n`},
		"--list":           {line: "@ alpha,beta" + to, out: `alpha:\n`},
		"--grain":          {line: "@ role:we*" + to, out: `^alpha:\n`},
		"--grain-pcre":     {line: "@ 'role:(web|x)'" + to, out: `^alpha:\n`},
		"--nodegroup":      {line: "@ nosuch" + to, err: `Node group nosuch unavailable`, code: 1},
		"--range":          {line: "@ alpha" + to, out: `^No minions matched the target`},
		"--delimiter":      {line: "@ -G 'deployed|env|lab'" + to, value: "|", out: `alpha:\n`},
		"--chunked":        {line: "@ alpha DIR/blob DIR/to", before: files("blob", "\x01\xffblob"), file: "to", holds: `blob$`},
		"--no-compression": {check: told("salt-cp", "-C @ one MASTER/master DIR/to", "compressed", "False")},
	}
}

func keyEffects() map[string]effect {
	pki := func(pairs ...string) func(*testing.T, *ran) {
		all := []string{"master", "root_dir: DIR\nid: m\n"}
		for _, p := range pairs {
			all = append(all, "etc/salt/pki/master/"+p, pem)
		}
		return files(all...)
	}
	byMaster := effect{elsewhere: "TestKeysByExternalAuthentication"}
	return map[string]effect{
		"--hard-crash": {line: "-c DIR @ -y -a bad", before: files("master", "root_dir: DIR\n", "etc/salt/pki/master/minions_pre/bad", "no key"),
			err: `Unable to accept invalid key for bad`, code: 1},
		"--user": {line: "@ --gen-keys=pair --gen-keys-dir=DIR", value: "no-such-user", err: `for user no-such-user. The user is not available`,
			code: 67},
		"--quiet": {line: "@ -l acc stray", out: `alpha`, err: `^$`},
		"--yes": {line: "-c DIR @ -a a", before: pki("minions_pre/a"),
			out: `going to be accepted:\nUnaccepted Keys:\na\nKey for minion a accepted.\n$`},
		"--rotate-aes-key": {line: "-c DIR -y @ -d a", value: "False", before: pki("minions/a"), nofile: "var/cache/salt/master/.dfn"},
		"--preserve-minions": {line: "-c DIR -y @ -d a", value: "True", before: func(t *testing.T, r *ran) {
			pki("minions/a")(t, r)
			files("var/cache/salt/master/minions/a/data.p", "x")(t, r)
		}, file: "var/cache/salt/master/minions/a/data.p", holds: "x"},
		"--list":     {line: "@", value: "rej", out: `^Rejected Keys:\nrefused\n$`},
		"--list-all": {line: "@ -a x", out: `^Accepted Keys:\n.*Denied Keys:\ndenied\n.*Unaccepted Keys:\npending\n.*Rejected Keys:\nrefused\n`},
		"--accept": {line: "-c DIR -y @", value: "a", before: pki("minions_pre/a", "minions_pre/b"), out: `Key for minion a accepted.\n$`,
			file: "etc/salt/pki/master/minions/a", holds: "PUBLIC"},
		"--accept-all": {line: "-c DIR -y @", before: pki("minions_pre/a", "minions_pre/b"),
			out: `Key for minion a accepted.\nKey for minion b accepted.\n$`},
		"--reject": {line: "-c DIR -y @", value: "a", before: pki("minions_pre/a"), out: `Key for minion a rejected.\n$`,
			file: "etc/salt/pki/master/minions_rejected/a", holds: "PUBLIC"},
		"--reject-all":       {line: "-c DIR -y @", before: pki("minions_pre/a"), out: `Key for minion a rejected.\n$`},
		"--include-all":      {line: "-c DIR -y @ -a a", before: pki("minions_rejected/a"), out: `Key for minion a accepted.\n$`},
		"--include-accepted": {line: "-c DIR -y @ -r a", before: pki("minions/a"), out: `Key for minion a rejected.\n$`},
		"--include-rejected": {line: "-c DIR -y @ -a a", before: pki("minions_rejected/a"), out: `Key for minion a accepted.\n$`},
		"--include-denied":   {line: "-c DIR -y @ -a a", before: pki("minions_denied/a"), out: `Key for minion a accepted.\n$`},
		"--print":            {line: "@", value: "pending", out: `^Unaccepted Keys:\npending:  -----BEGIN PUBLIC KEY`},
		"--print-all":        {line: "@", out: `Rejected Keys:\nrefused:  -----BEGIN PUBLIC KEY`},
		"--delete":           {line: "-c DIR -y @", value: "a", before: pki("minions/a"), out: `Key for minion a deleted.\n$`},
		"--delete-all": {line: "-c DIR -y @", before: pki("minions/a", "minions_denied/b"),
			out: `Key for minion a deleted.\nKey for minion b deleted.\n$`},
		"--finger":     {line: "@", value: "pending", out: `^Unaccepted Keys:\npending:  ([0-9a-f]{2}:){31}`},
		"--finger-all": {line: "@", out: `^Local Keys:\nmaster.pem:  ([0-9a-f]{2}:){31}`},
		"--gen-keys":   {line: "@ --gen-keys-dir=DIR", value: "pair", file: "pair.pub", holds: "PUBLIC"},
		"--gen-keys-dir": {line: "--gen-keys=" + pairHere + " @", value: "DIR/sub", before: func(t *testing.T, _ *ran) { t.Cleanup(removePair) },
			file: "sub/" + pairHere + ".pub", holds: "PUBLIC"},
		"--keysize":        {line: "--gen-keys=pair --gen-keys-dir=DIR @", value: "3072", file: "pair.pub", holds: `^[^\n]+\n([^\n]{64}\n){8}`},
		"--gen-signature":  {line: "-c DIR @", before: signing, out: `return:\n    True`, file: "etc/salt/pki/master/master_pubkey_signature", holds: "."},
		"--priv":           {line: "-c DIR --gen-signature @", value: "DIR/none", before: signing, out: `Private-key DIR/none does not exist`},
		"--pub":            {line: "-c DIR --gen-signature @", value: "DIR/none", before: signing, out: `Public-key DIR/none does not exist`},
		"--signature-path": {line: "-c DIR --gen-signature @", value: "DIR", before: signing, file: "master_pubkey_signature", holds: "."},
		"--auto-create":    {line: "-c DIR --gen-signature @", before: pki("master.pub"), file: "etc/salt/pki/master/master_sign.pem", holds: "PRIVATE"},
		"--state-output":   refused("@ -L", "terse"),
		"--state-verbose":  refused("@ -L", "False"),
		"--auth": {line: "@ --username=who --password=x -L", value: "pam", err: `Authentication failure of type "eauth" occurred for user who`,
			code: 77},
		"--make-token": byMaster,
		"--username":   byMaster,
		"--password":   byMaster,
	}
}

// pairHere is the name of a key pair that is created in the current directory if no name is given.
const pairHere = "brine-test-pair"

func removePair() {
	os.Remove(pairHere + ".pem")
	os.Remove(pairHere + ".pub")
}

func signing(t *testing.T, r *ran) {
	k, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(r.dir, "etc/salt/pki/master")
	files("master", "root_dir: DIR\nid: m\n", "etc/salt/pki/master/master.pub", pem)(t, r)
	if err := crypt.WriteKeyPair(dir, "master_sign", k, ""); err != nil {
		t.Fatal(err)
	}
}

// told returns a check of what a command line sends to a master of its own.
func told(program, line, key, want string) func(*testing.T, *field, []string) error {
	return func(t *testing.T, f *field, opt []string) error {
		up := func(string, []any, *value.Dict) clienttest.Return {
			return clienttest.Return{Value: true, Retcode: int64(0)}
		}
		m := clienttest.Start(t, clienttest.Options{
			Minions: []clienttest.Minion{{ID: "one", Run: up}}, Config: map[string]any{"order_masters": true, "syndic_wait": 0},
			Runner: func(*value.Dict, func(string, *value.Dict)) *value.Dict {
				return value.DictOf("return", true, "success", true)
			},
		})
		f.run(t, program, &effect{line: "-c " + m.Dir + " " + line}, opt)
		var got []string
		for _, l := range m.Loads() {
			for _, d := range []*value.Dict{l, l.Dict("kwargs"), l.Dict("kwarg").Dict("kwarg")} {
				if v, ok := d.Get(key); ok {
					got = append(got, value.Str(v))
				}
			}
			if args := l.List("arg"); key == "compressed" && len(args) > 3 {
				got = append(got, value.Str(args[3]))
			}
		}
		if !slices.Contains(got, want) {
			return fmt.Errorf("the master is told %s %q, not %s", key, got, want)
		}
		return nil
	}
}

// batchWaits compares the start times of the two jobs, which are their ids.
func batchWaits(t *testing.T, f *field, opt []string) error {
	r := f.run(t, "salt", &effect{line: "-b 1 @ -L alpha,beta test.ping --out=json"}, opt)
	ids := regexp.MustCompile(`"jid": "(\d{20})"`).FindAllStringSubmatch(r.stdout.String(), -1)
	if len(ids) != 2 {
		return fmt.Errorf("%d jobs in %s", len(ids), &r.stdout)
	}
	var at [2]time.Time
	for i := range at {
		var err error
		if at[i], err = salt.JIDTime(ids[i][1]); err != nil {
			return err
		}
	}
	if d := at[1].Sub(at[0]); d < 4*time.Second {
		return fmt.Errorf("the second job came %v after the first", d)
	}
	return nil
}

// cachedGrains caches grains that differ from those of the present configuration.
func cachedGrains(t *testing.T, r *ran) {
	conf := func(role string) {
		files("minion", "root_dir: DIR\nid: x\ngrains_cache: True\nenable_fqdns_grains: False\ngrains: {role: "+role+"}\n")(t, r)
	}
	conf("old")
	if out, err := daemontest.Brine.Command(t.Context(), t, "salt-call", "-c", r.dir, "--local", "grains.get", "role").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	conf("new")
}

// jobRecorded returns a check whether the call of a function is among the master's jobs, with a
// text. No other process calls that function. mark is another such function.
func jobRecorded(fun, mark, text string, want bool) func(*testing.T, *field, []string) error {
	return func(t *testing.T, f *field, opt []string) error {
		calls := func(fun string) int {
			r := f.run(t, "salt-run", &effect{line: "jobs.list_jobs --out=json search_function=" + fun}, nil)
			if text != "" && fun != mark {
				return strings.Count(r.stdout.String(), text)
			}
			return strings.Count(r.stdout.String(), `"`+fun+`"`)
		}
		before, marked := calls(fun), calls(mark)
		f.run(t, "salt-call", &effect{line: "@ " + fun}, opt)
		f.run(t, "salt-call", &effect{line: mark}, nil) // recorded after it
		eventually.Nil(t, time.Minute, "the master knows the later job", func() error {
			if calls(mark) == marked {
				return errors.New("it does not")
			}
			return nil
		})
		if n := calls(fun) - before; want != (n == 1) {
			return fmt.Errorf("%d jobs more", n)
		}
		return nil
	}
}

func daemonEffects(program string) map[string]effect {
	name, conf := "master", "root_dir: DIR\nid: x\ninterface: HOST\n"
	switch program {
	case "salt-api":
		conf += "netapi_enable_clients: [local]\nrest_cherrypy: {port: 24507, host: HOST, disable_ssl: true}\n"
	case "salt-minion":
		name, conf = "minion", "root_dir: DIR\nid: x\nmaster: 127.0.0.1:1\nenable_fqdns_grains: False\n"
	case "salt-syndic":
		conf += "syndic_master: 127.0.0.1:1\n"
	}
	plain := files(name, conf)
	nobody := files(name, conf+"user: no-such-user\n")
	return map[string]effect{
		"--config-dir": {line: "@ --check-config", value: "DIR", before: plain, out: `^OK: the configuration in DIR/` + name + ` is fine`},
		"--saltfile": {line: "-c DIR @ --check-config", value: "DIR/presets",
			before: files(name, conf, "presets", program+": {user: no-such-user}\n"), out: `no-such-user`, code: 1},
		"--user":              {line: "-c DIR @ --check-config", value: "no-such-user", before: plain, out: `no-such-user`, code: 1},
		"--check-config":      {line: "-c DIR @", before: nobody, out: `error: user: .*no-such-user`, code: 1},
		"--daemon":            {check: background(program, name, conf)},
		"--pid-file":          {daemon: true, line: "-c DIR @", value: "DIR/my.pid", before: plain, out: `its process id is in my.pid`},
		"--disable-keepalive": {daemon: true, line: "-c DIR @ -l info", before: plain, err: program + ` is up`, always: "no daemon starts itself again"},
		"--log-level":         {daemon: true, line: "-c DIR @", value: "info", before: plain, err: `\[INFO *\]`},
		"--log-file":          {daemon: true, line: "-c DIR --log-file-level=info @", value: "DIR/log", before: plain, file: "log", holds: `\[INFO *\]`},
		"--log-file-level":    {daemon: true, line: "-c DIR --log-file=DIR/log @", value: "info", before: plain, file: "log", holds: `\[INFO *\]`},
	}
}

// background returns a check of a daemon that continues after the command has ended.
func background(program, name, conf string) func(*testing.T, *field, []string) error {
	return func(t *testing.T, f *field, opt []string) error {
		r := &ran{dir: daemontest.ShortDir(t)}
		files(name, conf)(t, r)
		if opt == nil {
			r.daemon(t, program, &effect{line: "-c DIR"}, nil)
			return errors.New("it was up while the command ran")
		}
		if out, err := daemontest.Brine.Command(t.Context(), t, program, append(opt, "-c", r.dir)...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		text, err := os.ReadFile(filepath.Join(r.dir, "var/run", program+".pid"))
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(string(text))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
		eventually.Nil(t, time.Minute, "it ends", func() error {
			if err := syscall.Kill(pid, 0); err == nil {
				return errors.New("it lives")
			}
			return nil
		})
		return nil
	}
}
