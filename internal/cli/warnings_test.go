package cli

import (
	"strings"
	"testing"
)

// TestNoWarningsOfConfiguration: client programs do not warn about unknown options, which daemons
// do, and an invalid log format does not stop them.
func TestNoWarningsOfConfiguration(t *testing.T) {
	for _, format := range []string{"%(asctime)s,%(msecs)03.0f [%(levelname)-8s] %(message)s", "%(nothing)s", "%(message)d", "%", "[1]"} {
		dir := t.TempDir()
		text := "root_dir: " + dir + "\npki_dir: /pki\nid: some\nno_such_thing: 1\ntimeout: 1\nlog_fmt_console: '" + format + "'\nlog_fmt_logfile: '" +
			format + "'\n"
		if format == "[1]" {
			text = strings.ReplaceAll(text, "'[1]'", "[1]") + "log_datefmt: 5\nlog_fmt_jid: '%(x)s'\n"
		}
		write(t, dir, "master", text)
		write(t, dir, "minion", text+"master: 127.0.0.1\nfile_client: local\nenable_fqdns_grains: False\n")
		for _, line := range []string{"salt-key -L", "salt-key -L --log-level=quiet", "salt-call --local test.ping", "salt-call --local test.ping -l quiet",
			"salt-run -l quiet test.ping", "salt -l quiet * test.ping", "salt --config-dump"} {
			env, stdout, stderr := testEnv()
			env.Getenv = func(name string) string {
				return map[string]string{"SALT_CONFIG_DIR": dir, "HOME": dir, "GOGC": "100"}[name]
			}
			words := strings.Fields(line)
			find(Applets(), words[0]).Run(t.Context(), env, words[1:])
			quiet := strings.Contains(line, "quiet") || words[0] != "salt-call" && words[0] != "salt-run"
			if errs := stderr.String(); strings.Contains(errs, "no_such_thing") || strings.Contains(errs, "error:") || quiet &&
				strings.Contains(errs, "WARNING") {
				t.Errorf("%s with %q: stdout %q, stderr %q", line, format, stdout, errs)
			}
			if strings.HasPrefix(line, "salt-call") && stdout.String() != "local:\n    True\n" {
				t.Errorf("%s with %q: stdout %q, stderr %q", line, format, stdout, stderr)
			}
		}
	}
}
