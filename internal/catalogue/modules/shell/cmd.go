package shell

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"brine/internal/call/fn"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

type cmd struct{}

func init() {
	usual := fn.Shown("shell", func() any { return defaultShell() })
	unused := fn.Ignored("there is no PowerShell on Unix",
		strings.Fields("cmd cwd stdin runas shell env clean_env template rstrip umask output_encoding output_loglevel hide_output "+
			"timeout reset_system_locale ignore_retcode saltenv "+success)...)
	units.Declare("cmd", func() fn.Module {
		return fn.Module{Name: "cmd", Aliases: []string{"cmdmod"}, Doc: `Run programs and shell commands.`, Funcs: []fn.Func{
			fn.Of("run", cmd{}.run, `Run a command and return its output.`, usual, takes(
				"python_shell env clean_env template rstrip umask output_encoding output_loglevel log_callback hide_output timeout reset_system_locale "+
					"ignore_retcode saltenv use_vt redirect_stderr bg password encoded_cmd raise_err prepend_path "+success),
				fn.Example(`salt '*' cmd.run "ls -l | awk '/foo/{print \\$2}'"`), fn.Example(`salt '*' cmd.run 'echo $A' env='{A: b}' cwd=/tmp`)),
			fn.Of("shell", cmd{}.shell, `Run a command by way of a shell and return its output.`, usual, takes(
				"env clean_env template rstrip umask output_encoding output_loglevel log_callback hide_output timeout reset_system_locale "+
					"ignore_retcode saltenv use_vt bg password prepend_path "+success),
				fn.Example(`salt '*' cmd.shell 'ls -l | grep foo'`)),
			fn.Of("run_stdout", cmd{}.runStdout, `Run a command and return what it writes to standard output.`, usual, takes(single),
				fn.Example("salt '*' cmd.run_stdout 'ls -l'")),
			fn.Of("run_stderr", cmd{}.runStderr, `Run a command and return what it writes to standard error.`, usual, takes(single),
				fn.Example("salt '*' cmd.run_stderr 'ls -l'")),
			fn.Of("run_all", cmd{}.runAll, `Run a command and return its process id, exit status and both outputs.`, usual,
				fn.Default("redirect_stderr", "false"), takes(
					"python_shell env clean_env template rstrip umask output_encoding output_loglevel log_callback hide_output timeout reset_system_locale "+
						"ignore_retcode saltenv use_vt redirect_stderr password encoded_cmd prepend_path "+success),
				fn.Example("salt '*' cmd.run_all 'ls -l'")),
			fn.Of("retcode", cmd{}.retcode, `Run a command and return its exit status.`, usual, takes(
				"python_shell env clean_env template umask output_encoding output_loglevel log_callback timeout reset_system_locale ignore_retcode "+
					"saltenv use_vt password "+success),
				fn.Example("salt '*' cmd.retcode 'test -f /etc/hosts'")),
			fn.Of("run_bg", cmd{}.runBg, `Start a command that goes on by itself, and return its process id.`, usual,
				fn.Params(strings.Fields("cmd cwd runas group shell "+
					"python_shell env clean_env template umask timeout output_encoding output_loglevel log_callback reset_system_locale ignore_retcode "+
					"saltenv password prepend_path "+success)...),
				fn.Example("salt '*' cmd.run_bg 'sleep 100'")),
			fn.Of("script", cmd{}.script, `Run a script, given as an absolute path on the minion.`, usual,
				fn.Params(strings.Fields("source args cwd stdin runas group shell "+
					"python_shell env template umask output_encoding output_loglevel log_callback hide_output timeout reset_system_locale saltenv use_vt "+
					"bg password "+success)...),
				fn.Example("salt '*' cmd.script /usr/local/sbin/check args='a b'")),
			fn.Of("script_retcode", cmd{}.scriptRetcode, `Run a script and return its exit status.`, fn.Default("template", "jinja"), usual,
				fn.Params(strings.Fields("source args cwd stdin runas group shell "+
					"python_shell env template umask timeout reset_system_locale saltenv output_encoding output_loglevel log_callback use_vt password "+
					success)...),
				fn.Example("salt '*' cmd.script_retcode /usr/local/sbin/check")),
			fn.Of("exec_code", cmd{}.execCode, `Run a program text with an interpreter and return its standard output.
			All further keywords are those of cmd.run_all.`, fn.Example("salt '*' cmd.exec_code sh 'echo hello'")),
			fn.Of("exec_code_all", cmd{}.execCodeAll, `Run a program text with an interpreter and return what cmd.run_all does.
			All further keywords are those of cmd.run_all.`, fn.Example("salt '*' cmd.exec_code_all sh 'echo hello'")),
			fn.Of("run_chroot", cmd{}.runChroot,
				`Run a command with a directory as its /, where /dev, /proc and /sys are mounted, and return what cmd.run_all does.`, usual,
				fn.Default("python_shell", "true"), fn.Default("output_loglevel", "quiet"),
				fn.Params(strings.Fields("root cmd cwd stdin runas group shell python_shell binds "+
					"env clean_env template rstrip umask output_encoding output_loglevel log_callback hide_output timeout reset_system_locale "+
					"ignore_retcode saltenv use_vt bg "+success)...),
				fn.Example("salt '*' cmd.run_chroot /var/lib/lxc/container_name/rootfs 'sh /tmp/bootstrap.sh'")),
			fn.Of("powershell", cmd{}.powershell, `Refuse: PowerShell is for minions on Windows.`, unused, fn.Default("shell", "powershell"),
				fn.Params(strings.Fields(
					"cmd cwd stdin runas shell env clean_env template rstrip umask output_encoding output_loglevel hide_output timeout reset_system_locale "+
						"ignore_retcode saltenv use_vt password depth encode_cmd "+success)...), fn.Example("salt '*' cmd.powershell 'Get-Service'")),
			fn.Of("powershell_all", cmd{}.powershell, `Refuse: PowerShell is for minions on Windows.`, unused, fn.Default("shell", "powershell"),
				fn.Params(strings.Fields(
					"cmd cwd stdin runas shell env clean_env template rstrip umask output_encoding output_loglevel quiet timeout reset_system_locale "+
						"ignore_retcode saltenv use_vt password depth encode_cmd force_list "+success)...),
				fn.Example("salt '*' cmd.powershell_all 'Get-Service'")),
			fn.Of("has_exec", cmd{}.hasExec, `Say whether there is a program.`, fn.Example("salt '*' cmd.has_exec cat")),
			fn.Of("which", cmd{}.which, `Return the path of a program, null if there is none.`, fn.Example("salt '*' cmd.which cat")),
			fn.Of("which_bin", cmd{}.whichBin, `Return the path of the first program of a list that there is.`,
				fn.Example("salt '*' cmd.which_bin '[pip3, pip]'")),
			fn.Of("shells", cmd{}.shells, `Return the shells that /etc/shells lists.`, fn.Example("salt '*' cmd.shells")),
			fn.Of("shell_info", cmd{}.shellInfo, `Return the path and version of a shell or interpreter.`, fn.Example("salt '*' cmd.shell_info bash")),
			fn.Of("tty", cmd{}.tty, `Write a text to a terminal of the minion.`, fn.Example("salt '*' cmd.tty pts3 'This is a test'")),
		}}
	})
}

const (
	success = "success_retcodes success_stdout success_stderr"
	single  = "python_shell env clean_env template rstrip umask output_encoding output_loglevel log_callback hide_output timeout reset_system_locale " +
		"ignore_retcode saltenv use_vt password prepend_path " + success
)

// takes declares the arguments of a function: those that all functions begin
// with, and the rest.
func takes(rest string) fn.Option {
	return fn.Params(strings.Fields("cmd cwd stdin runas group shell " + rest)...)
}

// args are the arguments of all functions that run a command. Each function
// declares some of them in its own order.
type args struct {
	Source          string    `salt:"source" doc:"absolute path of the script"`
	Args            any       `salt:"args" doc:"arguments of the program, as a text or list" default:"null"`
	Cmd             any       `salt:"cmd" doc:"command line, or list of program and arguments"`
	Cwd             any       `salt:"cwd" doc:"absolute path of the working directory; the home of the user if null" default:"null"`
	Stdin           any       `salt:"stdin" doc:"text to read; the two characters \\n are a line end" default:"null"`
	Runas           string    `salt:"runas" doc:"user to run as" default:"null"`
	Group           string    `salt:"group" doc:"group to run as" default:"null"`
	Shell           string    `salt:"shell" doc:"path of the shell; that of the minion, or /bin/sh, if null" default:"null"`
	PythonShell     *bool     `salt:"python_shell" doc:"run by way of the shell; from the command line that is the default" default:"null"`
	Env             any       `salt:"env" doc:"map, or list of maps, of environment variables" default:"null"`
	CleanEnv        bool      `salt:"clean_env" doc:"leave out the minion's environment" default:"false"`
	Template        any       `salt:"template" doc:"template engine to render the command with" default:"null"`
	Rstrip          bool      `salt:"rstrip" doc:"remove white space at the end of the output" default:"true"`
	Umask           any       `salt:"umask" doc:"file mode mask, octal" default:"null"`
	OutputEncoding  string    `salt:"output_encoding" doc:"encoding of the output" default:"null"`
	OutputLoglevel  string    `salt:"output_loglevel" doc:"level to log the output with, or quiet" default:"debug"`
	LogCallback     any       `salt:"log_callback" ignored:"the command log has no callback" default:"null"`
	HideOutput      bool      `salt:"hide_output" doc:"return no output" default:"false"`
	Timeout         any       `salt:"timeout" doc:"seconds after which the command and its children are killed" default:"null"`
	ResetLocale     bool      `salt:"reset_system_locale" doc:"set the locale to C" default:"true"`
	IgnoreRetcode   bool      `salt:"ignore_retcode" doc:"do not take a non-zero exit status for a failure" default:"false"`
	Saltenv         any       `salt:"saltenv" doc:"environment of templates" default:"null"`
	UseVT           bool      `salt:"use_vt" ignored:"the output is not shown while the command runs" default:"false"`
	RedirectStderr  bool      `salt:"redirect_stderr" doc:"write standard error into standard output" default:"true"`
	Bg              bool      `salt:"bg" doc:"start the command and do not wait for it" default:"false"`
	Password        any       `salt:"password" ignored:"only Windows needs it" default:"null"`
	EncodedCmd      bool      `salt:"encoded_cmd" ignored:"only Windows needs it" default:"false"`
	RaiseErr        bool      `salt:"raise_err" doc:"fail if the command does" default:"false"`
	PrependPath     string    `salt:"prepend_path" doc:"directories to put before PATH, separated by colons" default:"null"`
	SuccessRetcodes any       `salt:"success_retcodes" doc:"list of further exit statuses that count as 0" default:"null"`
	SuccessStdout   any       `salt:"success_stdout" doc:"list of texts in standard output that make the exit status 0" default:"null"`
	SuccessStderr   any       `salt:"success_stderr" doc:"list of texts in standard error that make the exit status 0" default:"null"`
	Kwargs          fn.Kwargs `salt:"kwargs"`

	// These override redirect_stderr.
	separate, combined bool
}

func (cmd) run(ctx context.Context, c *fn.Call, a args) (any, error) {
	r, err := a.execute(ctx, c)
	if err != nil {
		return nil, err
	}
	if a.RaiseErr && r.failed && !quiet(a.OutputLoglevel) {
		return nil, fn.Errorf("%s", a.shown(r.stdout))
	}
	return a.shown(r.stdout), nil
}

func (cmd) shell(ctx context.Context, c *fn.Call, a args) (any, error) {
	yes := true
	a.PythonShell = &yes
	if v, ok := a.Kwargs.Get("python_shell"); ok && v != nil {
		on := value.Truth(v)
		a.PythonShell = &on
	}
	return cmd{}.run(ctx, c, a)
}

func (cmd) runStdout(ctx context.Context, c *fn.Call, a args) (any, error) {
	a.separate = true
	r, err := a.execute(ctx, c)
	return a.shown(r.stdout), err
}

func (cmd) runStderr(ctx context.Context, c *fn.Call, a args) (any, error) {
	a.separate = true
	r, err := a.execute(ctx, c)
	return a.shown(r.stderr), err
}

func (cmd) runAll(ctx context.Context, c *fn.Call, a args) (*value.Dict, error) {
	r, err := a.execute(ctx, c)
	return value.DictOf("pid", r.pid, "retcode", r.code, "stdout", a.shown(r.stdout), "stderr", a.shown(r.stderr)), err
}

func (cmd) retcode(ctx context.Context, c *fn.Call, a args) (any, error) {
	a.combined = true
	r, err := a.execute(ctx, c)
	return r.code, err
}

func (cmd) runBg(ctx context.Context, c *fn.Call, a args) (*value.Dict, error) {
	a.Bg = true
	r, err := a.execute(ctx, c)
	return value.DictOf("pid", r.pid), err
}

func (a *args) shown(output string) string {
	if a.HideOutput {
		return ""
	}
	return output
}

type hasArgs struct {
	Cmd string `salt:"cmd" doc:"name or path of the program"`
}

func (cmd) hasExec(_ context.Context, _ *fn.Call, a hasArgs) (bool, error) {
	return which(a.Cmd) != "", nil
}

func (cmd) which(_ context.Context, _ *fn.Call, a hasArgs) (any, error) {
	if path := which(a.Cmd); path != "" {
		return path, nil
	}
	return nil, nil
}

type whichBinArgs struct {
	Cmds []string `salt:"cmds" doc:"names or paths of programs"`
}

func (cmd) whichBin(_ context.Context, _ *fn.Call, a whichBinArgs) (any, error) {
	for _, name := range a.Cmds {
		if path := which(name); path != "" {
			return path, nil
		}
	}
	return nil, nil
}

type none struct{}

func (cmd) shells(_ context.Context, c *fn.Call, _ none) (*value.List, error) {
	found := &value.List{}
	data, err := os.ReadFile("/etc/shells")
	if err != nil {
		c.Log.Error("cannot read the list of shells", "err", err)
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			found.Append(line)
		}
	}
	return found, nil
}

type infoArgs struct {
	Shell       string `salt:"shell" doc:"bash, zsh, tcsh, perl, python, ruby or php"`
	ListModules bool   `salt:"list_modules" ignored:"only PowerShell has modules" default:"false"`
}

var (
	// versionFlag maps interpreters to their option for printing the version.
	versionFlag = map[string]string{"bash": "--version", "zsh": "--version", "tcsh": "--version", "perl": "-v", "python": "-V", "ruby": "-v", "php": "-v"}
	versionText = regexp.MustCompile(`\bv?((\d+(?:\.\d+)*)[^\s,)]*)`)
)

func (cmd) shellInfo(ctx context.Context, _ *fn.Call, a infoArgs) (*value.Dict, error) {
	flag, ok := versionFlag[a.Shell]
	if !ok {
		return value.DictOf("error", "Salt does not know how to get the version number for "+a.Shell, "installed", nil), nil
	}
	r, err := proc.Run(ctx, proc.Cmd{Args: []string{a.Shell, flag}, Env: os.Environ(), Combined: true, Timeout: 10 * time.Second, MaxOutput: 1 << 20})
	if err != nil || r.TimedOut {
		reason := "Timed out."
		if err != nil {
			reason = startReason(err)
		}
		return value.DictOf("error", "Unable to run command '"+a.Shell+" "+flag+"' Reason: "+reason, "installed", false), nil
	}
	d := value.DictOf("installed", nil, "path", which(a.Shell))
	m := versionText.FindStringSubmatch(string(r.Stdout))
	if m == nil {
		d.Set("error", "there is no version number in what "+a.Shell+" says")
		d.Set("stdout", decode(r.Stdout))
		return d, nil
	}
	parts := strings.Split(m[2], ".")
	if len(parts) == 1 {
		parts = append(parts, "0")
	}
	d.Set("installed", true)
	d.Set("version_raw", m[1])
	d.Set("version", strings.Join(parts[:min(3, len(parts))], "."))
	return d, nil
}

type ttyArgs struct {
	Device string `salt:"device" doc:"name of the terminal, tty3 or pts3"`
	Echo   string `salt:"echo" doc:"text to write" default:""`
}

var terminal = regexp.MustCompile(`^(tty[A-Za-z]*|pts)[0-9]+$`)

func (cmd) tty(_ context.Context, _ *fn.Call, a ttyArgs) (*value.Dict, error) {
	if !terminal.MatchString(a.Device) {
		return value.DictOf("Error", "The specified device is not a valid TTY"), nil
	}
	path := "/dev/" + strings.Replace(a.Device, "pts", "pts/", 1)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(a.Echo)
		f.Close()
	}
	if err != nil {
		return value.DictOf("Error", "Echoing to "+path+" returned error"), nil
	}
	return value.DictOf("Success", "Message was successfully echoed to "+path), nil
}

// which finds a program as Salt does: in PATH and in the usual directories.
func which(name string) string {
	if name == "" {
		return ""
	}
	if isProgram(name) {
		return name
	}
	dirs := strings.Split(os.Getenv("PATH"), ":")
	for _, d := range []string{"/sbin", "/bin", "/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"} {
		if !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	for _, d := range dirs {
		if path := strings.TrimRight(d, "/") + "/" + name; isProgram(path) {
			return path
		}
	}
	return ""
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
