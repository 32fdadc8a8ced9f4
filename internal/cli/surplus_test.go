package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/cli/frame"
	"brine/internal/net/crypt"
)

// surplus are command lines with an argument or option too many, by program. The second word, as in
// `brine cluster leave`, is a subcommand. Each command must end with a usage error before it reads
// or changes anything.
var surplus = map[string][]string{
	"salt-master": {"junk", "-d junk", "--check-config junk"},
	"salt-minion": {"junk", "-d junk", "--check-config junk"},
	"salt-api":    {"junk", "-d junk"},
	"salt-syndic": {"junk", "-d junk", "--check-config junk"},
	"salt-key": {"-D web1", "-D -y web1", "-y -D web1 web2", "-Dy web1", "-d web1 web2 -y", "-q -D web1 -y", "-A web1 -y", "-a web1 web2 -y", "-R web1 -y",
		"-r web1 web2 -y",
		"-a web1 -d web2 -y", "-A -D -y", "-r web1 -D -y", "--gen-keys new junk", "--gen-signature --auto-create junk", "--include-all -R web1 -y"},
	"salt":      {"-d * test.ping junk"},
	"salt-run":  {"-d test.arg junk"},
	"salt-call": {"--local -d test.arg junk"},
	"salt-cp":   nil, // accepts any number of files
	"demo":      {"junk", "cluster junk", "console junk"},
	"ha doctor": {"--harm true", "--fault kill", "--away 3"}, // accepts any number of masters
	"ha report": {"a b", "--cluster", "--mend true"},
	"ha drill":  {"junk"},
	"ha":        {"junk"},

	"cluster":                {"junk"},
	"cluster init":           {"junk --id a", "--id a --secret s", "--id a --sure", "--id a --out json"},
	"cluster join":           {"a b --id c", "a --id c --sure", "a --id c --pki-dir /x"},
	"cluster unshare":        {"junk", "--id a", "--out json"},
	"cluster leave":          {"junk", "--id other", "--sure", "--name main"},
	"cluster remove":         {"a b", "a --sure", "a --id b"},
	"cluster recover":        {"junk", "--sure junk", "--sure --id a"},
	"cluster drain":          {"a b", "a --id b"},
	"cluster undrain":        {"a b", "a --id b"},
	"cluster readmit":        {"a b", "a --id b", "a --sure"},
	"cluster rotate-key":     {"junk", "--id a", "--sure"},
	"cluster witness-secret": {"junk", "--id a"},
	"cluster rotate-secret":  {"junk", "--secret new"},
	"cluster status":         {"junk", "--id a"},
	"cluster voters":         {"junk", "--id a", "list junk", "list --force", "--force", "add", "add a b", "add a --force", "remove", "remove a --sure"},
	"cluster members":        {"junk", "--id a"},
	"cluster check":          {"junk", "--id a"},
	"witness":                {"junk"},
	"console":                {"junk", "--port 65536"},
	"python":                 {"junk"},
	"python install":         {"", "/proc/none junk"},
	"python serve":           {"/proc/none junk"},
	"migrate":                {"junk"},
	"migrate keys":           {"junk --to /tmp/x", "keys --to /tmp/x"},
	"migrate jobs":           {"junk --to /tmp/x", "--to local_cache --key-pair cluster"},
	"migrate cache":          {"junk --to redis"},
	"migrate check":          {"junk"},
	"migrate schema":         {"", "pgjsonb junk", "redis"},
	"doc":                    {"modules test junk", "--dir /proc/none modules"},
	"self-check":             {"junk", "--root /proc/none junk"},
	"man":                    {"salt junk", "--dir /proc/none salt"},
	"completion":             {"bash junk"},
}

// TestSurplusArguments: commands that change something reject surplus arguments.
func TestSurplusArguments(t *testing.T) {
	key, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range Applets() {
		if a.Hidden {
			continue
		}
		if _, ok := surplus[a.Name]; !ok {
			t.Errorf("%s has no row", a.Name)
		}
		for _, s := range a.Describe().Subs {
			if _, ok := surplus[a.Name+" "+s.Name]; !ok {
				t.Errorf("%s %s has no row", a.Name, s.Name)
			}
		}
	}
	for program, lines := range surplus {
		for _, line := range lines {
			dir := t.TempDir()
			write(t, dir, "master", "root_dir: "+dir+"\npki_dir: /pki\nid: surplus\n")
			write(t, dir, "minion", "root_dir: "+dir+"\nid: surplus\nmaster: 127.0.0.1\n")
			for _, f := range []string{"minions/web1", "minions/web2", "minions_pre/web1", "minions_pre/web3"} {
				write(t, dir, "pki/"+f, string(key.Public().PEM()))
			}
			before := tree(t, dir)
			env, stdout, stderr := testEnv()
			env.Getenv = func(name string) string {
				return map[string]string{"SALT_CONFIG_DIR": dir, "HOME": dir, "GOGC": "100"}[name]
			}
			name, sub, _ := strings.Cut(strings.TrimSuffix(program, "..."), " ")
			argv := append([]string{name, sub}, strings.Fields(line)...)
			if sub == "" {
				argv = append([]string{name}, strings.Fields(line)...)
			}
			if code := find(Applets(), name).Run(t.Context(), env, argv[1:]); code != frame.ExitUsage || stdout.Len() > 0 ||
				!strings.Contains(stderr.String(), name+": error: ") && !strings.Contains(stderr.String(), program+": error: ") {
				t.Errorf("%v: code %d, stdout %q, stderr %q", argv, code, stdout, stderr)
			}
			if after := tree(t, dir); after != before {
				t.Errorf("%v: the files changed from\n%s\nto\n%s", argv, before, after)
			}
		}
	}
}

// TestSurplusOfReading: commands that only read warn about a surplus argument, and work.
func TestSurplusOfReading(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "master", "root_dir: "+dir+"\npki_dir: /pki\nid: surplus\n")
	for _, line := range []string{"-L junk", "junk", "-l acc junk", "-p * junk", "-F junk"} {
		env, _, stderr := testEnv()
		env.Getenv = func(name string) string { return map[string]string{"SALT_CONFIG_DIR": dir}[name] }
		if code := find(Applets(), "salt-key").Run(t.Context(), env, strings.Fields(line)); code != frame.ExitOK ||
			!strings.Contains(stderr.String(), "WARNING: argument 'junk' is ignored") {
			t.Errorf("%s: code %d, stderr %q", line, code, stderr)
		}
	}
}

func write(t *testing.T, dir, path, text string) {
	t.Helper()
	path = filepath.Join(dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tree lists all files below a directory.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}
