// Package secrets runs functions, states and daemons with passwords in their arguments and options,
// and with failing servers. It searches comments, returns, events and logs for these passwords.
package secrets

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"brine/test/daemontest"
	"brine/test/tools"
)

func TestMain(m *testing.M) { daemontest.Main(m) }

// marker is the password in all tests.
const marker = "S3CRET"

// refusing starts a server that requires another password, and repeats the requested URL in its
// error.
func refusing(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		http.Error(w, "no entry to "+r.URL.Path, http.StatusUnauthorized)
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

// inPrivate returns a function that makes commands use a private directory for the files of
// packages.
func inPrivate(t *testing.T, dir string) func(c *exec.Cmd) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("files of packages of its own need root")
	}
	var script strings.Builder
	script.WriteString("set -e\nmount --make-rprivate /\n")
	for i, at := range []string{"/etc/apt", "/var/lib/apt", "/var/cache/apt", "/etc/cron.d", "/var/spool/cron"} {
		own := filepath.Join(dir, fmt.Sprint("own", i))
		for _, d := range []string{own, filepath.Join(own, "lists/partial"), filepath.Join(own, "archives/partial"), filepath.Join(own, "sources.list.d"),
			filepath.Join(own, "crontabs")} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintf(&script, "[ ! -d %s ] || mount --bind %s %[1]s\n", at, own)
	}
	script.WriteString("exec \"$@\"\n")
	return func(c *exec.Cmd) *exec.Cmd {
		c.Args = append([]string{"sh", "-c", script.String(), "sh", c.Path}, c.Args[1:]...)
		c.Path = tools.Need(t, "dash", "sh")
		c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		return c
	}
}

// calls are functions and states with their arguments. URL is a URL with a name and a password, DIR
// a directory, REPO a git checkout whose remote repository is URL. A call that needs a program
// begins with its name and a colon.
var calls = []string{
	"git: git.clone DIR/g URL",
	"git: git.ls_remote remote=URL",
	"git: git.remote_refs URL",
	"git: git.fetch REPO",
	"git: git.fetch REPO remote=URL",
	"git: git.pull REPO",
	"git: git.push REPO remote=origin ref=master",
	"git: git.remote_get REPO",
	"git: git.remotes REPO",
	"git: git.remote_set REPO URL remote=new",
	"git: git.submodule REPO add opts=URL",
	"git: git.clone DIR/g https://127.0.0.1:1/x https_user=user https_pass=S3CRET",
	"git: state git.latest name=URL target=DIR/g",
	"git: state git.latest name=URL target=REPO force_reset=True",
	"git: state git.cloned name=URL target=DIR/g",
	"git: state git.cloned name=URL target=REPO",
	"git: state git.detached name=URL target=DIR/g rev=abc",
	"git: state git.detached name=URL target=REPO rev=abc force_clone=True",
	"git: state git.latest name=https://127.0.0.1:1/x target=DIR/g https_user=user https_pass=S3CRET",
	"git: state git.config_set name=x.y value=1 repo=REPO",
	"hg: hg.clone DIR/h URL",
	"hg: state hg.latest name=URL target=DIR/h",
	"pip3: pip.install pkgs=brine-none index_url=URL",
	"pip3: pip.install pkgs=brine-none index_url=http://127.0.0.1:1/ extra_index_url=URL",
	"pip3: pip.install pkgs=brine-none index_url=http://127.0.0.1:1/ proxy=user:S3CRET@127.0.0.1:1",
	"pip3: pip.install pkgs=git+URL",
	"pip3: pip.list_all_versions brine-none index_url=URL",
	"pip3: state pip.installed name=brine-none index_url=URL",
	"pip3: state pip.installed name=brine-none index_url=http://127.0.0.1:1/ proxy=user:S3CRET@127.0.0.1:1",
	"pip3: state pip.installed name=git+URL#egg=x",
	"gem: gem.install brine-none source=URL",
	"gem: gem.sources_add URL",
	"gem: state gem.installed name=brine-none source=URL",
	"gem: state gem.installed name=brine-none proxy=URL",
	"cp.get_url URL DIR/f",
	"cp.get_url URL",
	"cp.get_url URL dest=null",
	"cp.get_file URL DIR/f",
	"cp.get_file_str URL",
	"cp.get_template URL DIR/f",
	"cp.cache_file URL",
	"cp.cache_files [URL]",
	"cp.cache_dest URL",
	"cp.is_cached URL",
	"cp.hash_file URL",
	"cp.stat_file URL",
	"cp.get_url ftp://user:S3CRET@127.0.0.1:1/x DIR/f",
	"cp.get_url s3://user:S3CRET@127.0.0.1:1/x DIR/f",
	"cp.get_url swift://user:S3CRET@127.0.0.1:1/x DIR/f",
	"cp.get_url http://127.0.0.1:1/x?access_token=S3CRET DIR/f",
	"file.get_source_sum source=URL source_hash=URL",
	"file.get_source_sum source=URL source_hash=URL source_hash_sig=URL",
	"file.source_list URL URL base",
	"file.get_managed DIR/f jinja URL URL null root root 0644 base null null skip_verify=False",
	"file.check_managed DIR/f URL URL null root root 0644 null jinja null null base",
	"file.check_managed_changes DIR/f URL URL null root root 0644 null jinja null null base",
	"file.manage_file DIR/f '' null URL {} root root 0644 null base ''",
	"http.query URL",
	"http.query URL username=user password=S3CRET backend=requests",
	"http.query http://127.0.0.1:1/x?token=S3CRET",
	"http.wait_for_successful_query URL wait_for=0",
	"cmd.script URL",
	"cmd.script_retcode URL",
	"cmd.run /does/not/exist env={PASSWORD: S3CRET} python_shell=False",
	"cmd.run_all false env={PASSWORD: S3CRET}",
	"cmd.run true cwd=/does/not/exist env={PASSWORD: S3CRET}",
	"cmd.run true runas=nobody-here env={PASSWORD: S3CRET} password=S3CRET",
	"ssh.set_auth_key_from_file root URL",
	"ssh.check_key_file root URL",
	"gpg.import_key filename=URL",
	"slsutil.renderer string={{'URL'|http_query}}",
	"slsutil.renderer URL",
	"slsutil.renderer string={%import_yaml'URL'as|x%}",
	"archive.cmd_unzip DIR/no.zip DIR/z password=S3CRET",
	"archive.unzip DIR/no.zip DIR/z password=S3CRET",
	"archive.is_encrypted URL",
	"archive.list URL",
	"archive.list URL source_hash=URL",
	"mysql.query mysql select connection_user=u connection_pass=S3CRET connection_host=127.0.0.1 connection_port=1",
	"mysql.user_create joe localhost S3CRET connection_host=127.0.0.1 connection_port=1",
	"mysql.user_chpass joe localhost S3CRET connection_host=127.0.0.1 connection_port=1",
	"state mysql_user.present name=joe password=S3CRET connection_host=127.0.0.1 connection_port=1 connection_pass=S3CRET",
	"state mysql_query.run name=q query=select database=d connection_pass=S3CRET connection_host=127.0.0.1 connection_port=1",
	"psql: postgres.user_create joe rolepassword=S3CRET host=127.0.0.1 port=1 password=S3CRET user=root",
	"psql: postgres.psql_query select host=127.0.0.1 port=1 password=S3CRET runas=root",
	"psql: state postgres_user.present name=joe password=S3CRET db_host=127.0.0.1 db_port=1 db_password=S3CRET user=root",
	"psql: state postgres_database.present name=d db_host=127.0.0.1 db_port=1 db_password=S3CRET user=root",
	"htpasswd: webutil.useradd DIR/no/such joe S3CRET",
	"htpasswd: webutil.verify DIR/no/such joe S3CRET",
	"htpasswd: state webutil.user_exists name=joe password=S3CRET htpasswd_file=DIR/no/such",
	"rabbitmqctl: rabbitmq.add_user joe S3CRET",
	"rabbitmqctl: rabbitmq.change_password joe S3CRET",
	"rabbitmqctl: rabbitmq.check_password joe S3CRET",
	"rabbitmqctl: state rabbitmq_user.present name=joe password=S3CRET",
	"state file.managed name=DIR/f source=URL source_hash=URL",
	"state file.managed name=DIR/f source=URL skip_verify=True",
	"state file.managed name=DIR/f source=URL",
	"state file.managed name=DIR/f source=URL source_hash=bad",
	"state file.managed name=DIR/f source=[URL,URL]",
	"state file.managed name=DIR/f source=URL skip_verify=True signature=URL",
	"state file.managed name=DIR/f source=ftp://user:S3CRET@127.0.0.1:1/x skip_verify=True",
	"state file.managed name=DIR/f source=http://127.0.0.1:1/x?token=S3CRET skip_verify=True",
	"state file.cached name=URL",
	"state file.cached name=URL source_hash=URL",
	"state file.cached name=URL skip_verify=True",
	"state file.not_cached name=URL",
	"state file.patch name=DIR/there source=URL source_hash=URL",
	"state file.patch name=DIR/there source=URL skip_verify=True",
	"state file.append name=DIR/there source=URL source_hash=URL",
	"state file.append name=DIR/there source=URL",
	"state file.prepend name=DIR/there source=URL",
	"state file.blockreplace name=DIR/there source=URL marker_start=a marker_end=b append_if_not_found=True",
	"state file.recurse name=DIR/r source=URL",
	"state file.copy name=DIR/f source=URL",
	"state archive.extracted name=DIR/a source=URL/x.tgz source_hash=URL",
	"state archive.extracted name=DIR/a source=URL/x.tgz skip_verify=True",
	"state archive.extracted name=DIR/a source=URL/x.tgz",
	"state archive.extracted name=DIR/a source=DIR/no.zip password=S3CRET",
	"state cmd.script name=x source=URL",
	"state cmd.script name=URL",
	"state cmd.run name=false env={PASSWORD: S3CRET}",
	"state cmd.run name=/does/not/exist env={PASSWORD: S3CRET} python_shell=False",
	"state cmd.run name=true runas=nobody-here env=[{PASSWORD: S3CRET}]",
	"state cron.file name=URL source_hash=URL user=root",
	"state cron.file name=URL user=root",
	"state ssh_auth.present name=x user=root source=URL",
	"state ssh_auth.absent name=x user=root source=URL",
	"state http.query name=URL status=200",
	"state http.query name=URL match=x",
	"state http.query name=http://127.0.0.1:1/x?token=S3CRET status=200",
	"state http.wait_for_successful_query name=URL wait_for=0 status=200",
	"state user.present name=joe password=S3CRET test=True",
	"state virtualenv.managed name=DIR/v index_url=URL pip_pkgs=[brine-none]",
	"state debconf.set_file name=x source=URL",
	"apt-get: pkg.mod_repo deb|URL|x|main refresh=True",
	"apt-get: pkg.refresh_db",
	"apt-get: pkg.refresh_db failhard=True",
	"apt-get: pkg.install sources=[{brine-none:URL}]",
	"apt-get: state pkg.installed name=brine-none sources=[{brine-none:URL}]",
	"apt-get: state pkgrepo.managed name=deb|URL|x|main",
	"apt-get: state pkgrepo.managed name=deb|URL|x|main key_url=URL file=/etc/apt/sources.list.d/y.list",
	"apt-get: state pkgrepo.managed name=deb|http://127.0.0.1:1/|x|main key_url=URL aptkey=False signedby=/etc/apt/k.gpg file=/etc/apt/sources.list.d/z.list",
	"apt-get: state pkg.installed name=brine-none refresh=True",
	"apt-get: state pkg.uptodate name=x refresh=True",
	"apt-get: state pkgrepo.absent name=deb|URL|x|main",
}

// onPurpose are calls that return the requested settings unchanged, as in Salt. Only their logs are
// searched.
var onPurpose = []string{"pkg.mod_repo", "gem.sources_add", "file.source_list"}

// TestMinion calls functions that fetch files or connect to servers.
func TestMinion(t *testing.T) {
	dir := daemontest.ShortDir(t)
	refuses := refusing(t)
	minion := fmt.Sprintf("id: a\nroot_dir: %s\nfile_client: local\nuser: root\nfile_roots: {base: [%[1]s/srv]}\nenable_fqdns_grains: False\n"+
		"mysql.pass: %s\npostgres.pass: %[2]s\ns3.key: %[2]s\n", dir, marker)
	if err := os.WriteFile(filepath.Join(dir, "minion"), []byte(minion), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"http://user:" + marker + "@127.0.0.1:1/x.git", "http://user:" + marker + "@" + refuses + "/x.git"} {
		for _, line := range calls {
			program, line, needs := strings.Cut(line, ": ")
			if !needs || strings.ContainsAny(program, " =") {
				program, line = "", strings.TrimSuffix(program+": "+line, ": ")
			}
			if (program != "" || !strings.Contains(line, "URL")) && strings.Contains(address, refuses) {
				continue // programs are slow, and the result would be the same
			}
			t.Run(line, func(t *testing.T) {
				t.Parallel()
				if _, err := exec.LookPath(program); program != "" && err != nil {
					t.Skip(err)
				}
				work := daemontest.ShortDir(t) // the path of t.TempDir contains the arguments
				repo := filepath.Join(work, "repo")
				if strings.Contains(line, "REPO") {
					git(t, "init", "-q", repo)
					git(t, "-C", repo, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x")
					git(t, "-C", repo, "remote", "add", "origin", address)
				}
				if err := os.WriteFile(filepath.Join(work, "there"), []byte("x\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				words := []string{}
				for _, w := range fields(line) {
					w = strings.NewReplacer("URL", address, "DIR", work, "REPO", repo, "|", " ").Replace(w)
					words = append(words, w)
				}
				private := inPrivate(t, work)
				isState := words[0] == "state"
				if isState {
					words = append([]string{"state.single"}, words[1:]...)
				}
				c := private(daemontest.Brine.Command(t.Context(), t, "salt-call",
					append([]string{"-c", dir, "--local", "-l", "all", "--out=json"}, words...)...))
				c.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "PIP_RETRIES=0", "PIP_DEFAULT_TIMEOUT=5", "HOME="+work, "npm_config_fetch_retries=0",
					"PIP_BREAK_SYSTEM_PACKAGES=1")
				var out, logged strings.Builder
				c.Stdout, c.Stderr = &out, &logged
				_ = c.Run() // most of them fail
				for l := range strings.Lines(logged.String()) {
					if strings.Contains(l, marker) {
						t.Errorf("logged: %s", l)
					}
				}
				if slices.Contains(onPurpose, words[0]) {
					return
				}
				if shown := shown(t, out.String(), isState); strings.Contains(shown, marker) {
					t.Errorf("returned: %s", shown)
				}
				if testing.Verbose() {
					t.Logf("returned: %.300s", shown(t, out.String(), isState))
				}
			})
		}
	}
}

// fields splits a line at spaces that are not in braces or brackets.
func fields(line string) []string {
	depth := 0
	return strings.FieldsFunc(line, func(r rune) bool {
		switch r {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		return r == ' ' && depth == 0
	})
}

func git(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(tools.Need(t, "git", "git"), args...).CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// shown returns the result of a call. For a state it omits the id and name, which are the caller's.
func shown(t *testing.T, out string, isState bool) string {
	t.Helper()
	var ret map[string]any
	if err := json.Unmarshal([]byte(out), &ret); err != nil || !isState {
		return out
	}
	states, ok := ret["local"].(map[string]any)
	if !ok {
		return out
	}
	var texts []string
	for _, s := range states {
		if s, ok := s.(map[string]any); ok {
			delete(s, "name")
			delete(s, "__id__")
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	return strings.Join(texts, "\n")
}

// masters are configurations of a master that fails: the servers refuse connections, or the
// password. URL is as in calls.
var masters = map[string]string{
	"git": "fileserver_backend: [git]\ngitfs_remotes: [URL]\next_pillar: [{git: [master URL]}]\ngit_pillar_provider: git\n",
	"password": "fileserver_backend: [git]\ngitfs_remotes: [{https://127.0.0.1:1/x: [{user: user}, {password: S3CRET}]}]\ngit_pillar_user: user\n" +
		"git_pillar_password: S3CRET\next_pillar: [{git: [master https://127.0.0.1:1/x]}]\n",
	"web": "ext_pillar: [{http_json: {url: URL}}, {http_yaml: {url: URL, username: user, password: S3CRET}}]\n",
	"mysql": "mysql: {host: 127.0.0.1, port: 1, user: u, pass: S3CRET, db: d}\nmysql.pass: S3CRET\nmysql.host: 127.0.0.1\nmysql.port: 1\n" +
		"mysql.password: S3CRET\nmaster_job_cache: mysql\nevent_return: [mysql]\ncache: mysql\next_pillar: [{mysql: {q: 'select 1'}}]\n",
	"postgres": "returner.pgjsonb.host: 127.0.0.1\nreturner.pgjsonb.port: 1\nreturner.pgjsonb.pass: S3CRET\nmaster_job_cache: pgjsonb\nevent_return: " +
		"[pgjsonb]\ncache: postgres\ncache.postgres.host: 127.0.0.1\ncache.postgres.port: 1\ncache.postgres.password: S3CRET\ncache.postgres.user: " +
		"u\npostgres: {host: 127.0.0.1, port: 1, user: u, pass: S3CRET, db: d}\next_pillar: [{postgres: {q: 'select 1'}}]\n",
	"redis": "redis.host: 127.0.0.1\nredis.port: 1\nredis.password: S3CRET\nmaster_job_cache: redis\ncache: redis\n" +
		"cache.redis.host: 127.0.0.1\ncache.redis.port: 1\ncache.redis.password: S3CRET\n",
	"etcd":   "etcd.host: 127.0.0.1\netcd.port: 1\netcd.username: u\netcd.password: S3CRET\nmaster_job_cache: etcd\ncache: etcd\n",
	"consul": "cache: consul\nconsul.host: 127.0.0.1\nconsul.port: 1\nconsul.token: S3CRET\n",
	"s3": "fileserver_backend: [s3fs]\ns3.buckets: {base: [b]}\ns3.keyid: u\ns3.key: S3CRET\ns3.service_url: 127.0.0.1:1\ns3.path_style: True\n" +
		"s3.https_enable: False\n",
	"ldap": "auth.ldap.uri: ldap://127.0.0.1:1\nauth.ldap.basedn: dc=x\nauth.ldap.binddn: cn=a\nauth.ldap.bindpw: S3CRET\nauth.ldap.filter: uid={{ " +
		"username }}\nexternal_auth: {ldap: {joe: [.*]}}\n",
	"rest": "external_auth: {rest: {^url: URL, joe: [.*]}}\n",
	"tops": "master_tops: {ext_nodes: echo URL S3CRET >&2; exit 3}\next_pillar: [{cmd_json: echo URL >&2; exit 3}]\n",
}

// TestMaster runs masters whose servers refuse them.
func TestMaster(t *testing.T) {
	refuses := refusing(t)
	for name, config := range masters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, address := range []string{"http://user:" + marker + "@127.0.0.1:1/x.git", "http://user:" + marker + "@" + refuses + "/x.git"} {
				if i > 0 && !strings.Contains(config, "URL") {
					return
				}
				m := daemontest.NewMaster(t, daemontest.Brine, "m", daemontest.Host(), strings.ReplaceAll(config, "URL", address)+
					"gitfs_update_interval: 1\ntimeout: 3\n")
				m.Start()
				events := m.Events()
				var said strings.Builder
				for _, args := range [][]string{
					{"salt-run", "fileserver.update"}, {"salt-run", "fileserver.file_list"}, {"salt-run", "git_pillar.update"},
					{"salt-run", "pillar.show_pillar", "web1"}, {"salt-run", "pillar.show_top"},
					{"salt-run", "state.show_top"}, {"salt-run", "jobs.list_jobs"}, {"salt-run", "jobs.cache_status"}, {"salt-run", "cache.grains", "*"},
					{"salt-run", "cache.list", "minions"}, {"salt-run", "http.query", address},
					{"salt-run", "salt.cmd", "cp.get_file_str", address}, {"salt", "-a", "ldap", "--username=joe", "--password=" + marker, "*", "test.ping"},
					{"salt", "-a", "rest", "--username=joe", "--password=" + marker, "*", "test.ping"}, {"salt", "*", "test.ping"},
				} {
					if strings.Contains(config, "external_auth") != (len(args) > 2 && args[1] == "-a") {
						continue
					}
					out, errs, _ := m.Run(daemontest.Brine, args[0], args[1:]...)
					said.WriteString(out + errs)
					if text := out + errs; strings.Contains(text, marker) {
						t.Errorf("%v:\n%s", args, text)
					}
				}
				m.Kill()
				if text := said.String() + m.Log(); i == 0 && !strings.Contains(text, "127.0.0.1:1") && !strings.Contains(text, "<redacted>") {
					t.Errorf("no server was asked:\n%s", text)
				}
				for l := range strings.Lines(m.Log()) {
					if strings.Contains(l, marker) {
						t.Errorf("logged: %s", l)
					}
				}
				for l := range strings.Lines(events()) {
					// As in Salt, the arguments of a job are shown to its caller.
					if strings.Contains(l, marker) && !strings.Contains(l, "fun_args") {
						t.Errorf("event: %s", l)
					}
				}
				if testing.Verbose() {
					t.Log(m.Log())
				}
			}
		})
	}
}
