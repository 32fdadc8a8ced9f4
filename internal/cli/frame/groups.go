package frame

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"brine/internal/base/log"
	"brine/internal/call/output"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// Config is the option for the configuration directory.
type Config struct {
	ConfigDir string `flag:"-c --config-dir" arg:"DIR" env:"SALT_CONFIG_DIR" default:"/etc/salt" doc:"Directory with the configuration. Default: %default."`
}

// Resolve makes the directory absolute and returns it. If the directory does not exist, it only
// warns, since every option has a default.
func (c *Config) Resolve(env *Env) string {
	dir := filesys.ExpandUserFrom(c.ConfigDir, env.Getenv("HOME"))
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		env.Errorf("WARNING: CONFIG '%s' directory does not exist.", dir)
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	c.ConfigDir = dir
	return dir
}

// Saltfile is the option for the file with presets of options.
type Saltfile struct {
	Saltfile string `flag:"--saltfile" arg:"FILE" doc:"File with preset options. Default: $SALT_SALTFILE, ./Saltfile or ~/.salt/Saltfile, whichever exists."`
}

func (s *Saltfile) saltfilePath() string { return s.Saltfile }

// HardCrash is the option to show errors in full.
type HardCrash struct {
	HardCrash bool `flag:"--hard-crash" env:"SALT_HARD_CRASH" doc:"End with an error, and its whole text, where the program would end quietly."`
}

// StrictExit is the option for exit codes that scripts can rely on. Without it the exit codes are
// Salt's, and some failures exit with 0.
type StrictExit struct {
	StrictExit bool `flag:"--strict-exit" doc:"End with an exit code other than 0 whenever something failed, also where Salt ends with 0: the master refused or cannot be reached, there is no such function, a function returned False, minions did not return, Ctrl-C."`
}

// Strict returns the exit code of a failure for which Salt's program exits with 0.
func (s StrictExit) Strict(code int) int {
	if s.StrictExit {
		return code
	}
	return ExitOK
}

// NoParse is the option to keep named arguments as strings.
type NoParse struct {
	NoParse string `flag:"--no-parse" arg:"NAME,NAME,..." env:"SALT_NO_PARSE" doc:"Named arguments whose values stay text instead of being read as YAML."`
}

// Names returns the named arguments.
func (n *NoParse) Names() []string {
	var out []string
	for w := range strings.SplitSeq(n.NoParse, ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}

// ArgsStdin is the option to read more of the command line from stdin.
type ArgsStdin struct {
	ArgsStdin bool `flag:"--args-stdin" doc:"Read further options and arguments from stdin, one per line."`
}

func (a *ArgsStdin) argsFromStdin() bool { return a.ArgsStdin }

// Logging is the group of options for logs. If the program has its own option -l, that option gets
// the short name.
type Logging struct {
	LogLevel     string `flag:"-l --log-level" arg:"LEVEL" choices:"all,garbage,trace,debug,profile,info,warning,error,critical,quiet" doc:"Least level of messages on the console. The levels below info may show secrets. Default: warning."`
	LogFile      string `flag:"--log-file" arg:"FILE" doc:"Path of the log file."`
	LogFileLevel string `flag:"--log-file-level" dest:"log_level_logfile" arg:"LEVEL" choices:"all,garbage,trace,debug,profile,info,warning,error,critical,quiet" doc:"Least level of messages in the log file. Default: that of the console."`
}

// Apply overrides the configured options with those of the command line.
func (l *Logging) Apply(o *log.Options) {
	if l.LogLevel != "" {
		o.Level = l.LogLevel
	}
	if l.LogFile != "" {
		o.File = l.LogFile
	}
	if l.LogFileLevel != "" {
		o.FileLevel = l.LogFileLevel
	}
}

// Open returns the log of a program that runs once for a user. If the log file cannot be written,
// the program goes on. It warns only if the user chose that file, because only root can write the
// default one. out may be nil.
func (l *Logging) Open(env *Env, o log.Options, out *Output) (*log.Log, error) {
	l.Apply(&o)
	o.Lines = log.FormatText             // people read it, even where daemons write JSON
	if out != nil && out.Out == "yaml" { // keep both streams together valid YAML
		if o.Format == "" {
			o.Format = log.ConsoleFormat
		}
		o.Format = "# " + o.Format
	}
	logger, err := log.Open(o, env.Stderr)
	if logger == nil {
		return nil, err
	}
	if err != nil && (l.LogFile != "" || o.Chosen) {
		logger.Warn("cannot open the log file; continuing without it", "err", err)
	}
	return logger, nil
}

// ReopenOnHangup reopens the log file at every SIGHUP until ctx is done. It is for daemons; other
// programs end at SIGHUP.
func ReopenOnHangup(ctx context.Context, l *log.Log) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangup)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangup:
				if err := l.Reopen(); err != nil {
					l.Error("cannot reopen the log file; continuing with the old one", "err", err)
				}
			}
		}
	}()
}

// Daemon is the group of options of daemons.
type Daemon struct {
	User             string `flag:"-u --user" doc:"User to run as."`
	Daemon           bool   `flag:"-d --daemon" doc:"Run in the background."`
	PidFile          string `flag:"--pid-file" dest:"pidfile" arg:"FILE" doc:"File to keep the process id in."`
	DisableKeepalive bool   `flag:"--disable-keepalive" doc:"Accepted for compatibility: the daemon never starts itself again, which is the service manager's to do."`
}

// User is the option for the user to run as.
type User struct {
	User string `flag:"-u --user" doc:"User to run as."`
}

// EAuth is the group of options for external authentication.
type EAuth struct {
	EAuth     string `flag:"-a --auth --eauth --external-auth" dest:"eauth" doc:"Authentication system to use."`
	MakeToken bool   `flag:"-T --make-token" dest:"mktoken" doc:"Keep a token, so that the next commands need no password."`
	Username  string `flag:"--username" doc:"User name for the authentication system."`
	Password  string `flag:"--password" doc:"Password for the authentication system."`
}

// Output is the group of options for the output format.
type Output struct {
	Out           string `flag:"--out --output" dest:"output" arg:"NAME" doc:"Form of the output: nested, json, yaml, txt, raw, pprint, quiet and others."`
	OutIndent     *int   `flag:"--out-indent --output-indent" dest:"output_indent" arg:"N" doc:"Spaces per level of json, yaml and pprint; negative means all on one line."`
	OutFile       string `flag:"--out-file --output-file" dest:"output_file" arg:"FILE" doc:"Write the output to this file."`
	OutFileAppend bool   `flag:"--out-file-append --output-file-append" dest:"output_file_append" doc:"Add to the file instead of replacing its contents."`
	NoColor       bool   `flag:"--no-color --no-colour" doc:"No colours."`
	ForceColor    bool   `flag:"--force-color --force-colour" doc:"Colours even when the output is no terminal."`
	StateOutput   string `flag:"--state-output --state_output" arg:"FORM" doc:"Form of state results: full, terse, mixed, changes or filter, each also with _id."`
	StateVerbose  *bool  `flag:"--state-verbose --state_verbose" arg:"BOOL" doc:"Whether to show states that succeeded without changes."`
}

// Display prints returned data to the chosen destination in the chosen format.
type Display struct {
	*output.Printer
	w      io.Writer
	wanted string
	file   *os.File
}

// Open returns a Display for the configured options, overridden by those of the command line. Its
// error is a usage error.
func (o *Output) Open(env *Env, opts output.Options, logger *slog.Logger) (*Display, error) {
	if o.OutIndent != nil {
		opts.Indent = output.Indent{Given: true, Width: min(*o.OutIndent, 64)}
	}
	if o.StateOutput != "" {
		opts.StateOutput = o.StateOutput
	}
	if o.StateVerbose != nil {
		opts.StateVerbose = *o.StateVerbose
	}
	d := &Display{w: env.Stdout, wanted: opts.Outputter}
	if o.Out != "" {
		d.wanted = o.Out
	}
	if o.OutFile != "" {
		mode := os.O_CREATE | os.O_WRONLY | os.O_APPEND
		if !o.OutFileAppend {
			mode |= os.O_TRUNC
		}
		f, err := os.OpenFile(o.OutFile, mode, 0o644)
		if err != nil {
			return nil, fmt.Errorf("%s: Access denied: %w", o.OutFile, err)
		}
		d.w, d.file = f, f
	}
	on := o.useColor(env, opts.Color)
	opts.Color = &on
	if on && opts.ColorTheme != "" {
		theme, err := loadTheme(opts.ColorTheme)
		if err != nil {
			logger.Warn("cannot use the color theme", "err", err)
		}
		opts.Theme = theme
	}
	d.Printer = output.New(opts, logger)
	return d, nil
}

// useColor reports whether to use colours: the command line decides first, then $NO_COLOR, then the
// configuration, then whether the output is a terminal.
func (o *Output) useColor(env *Env, configured *bool) bool {
	switch {
	case o.ForceColor:
		return true
	case o.NoColor, env.Getenv("NO_COLOR") != "":
		return false
	case configured != nil:
		return *configured
	}
	return o.OutFile == "" && env.IsTerminal(env.Stdout)
}

// loadTheme reads a map of colour names to codes.
func loadTheme(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	v, err := yaml.Load(text, path)
	if err != nil {
		return nil, err
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return nil, fmt.Errorf("%s is not a map of colours", path)
	}
	theme := map[string]string{}
	for k, code := range d.All() {
		c := value.Str(code)
		if strings.Trim(c, "0123456789;") != "" {
			return nil, fmt.Errorf("%s: %q is not the code of a colour", path, c)
		}
		theme[value.Str(k)] = c
	}
	return theme, nil
}

// Wanted returns the outputter that the user requested, or "".
func (d *Display) Wanted() string { return d.wanted }

// Show prints data with the requested outputter, otherwise with the suggested one. A closed pipe is
// not an error.
func (d *Display) Show(data any, suggested string, c output.Call) error {
	err := d.Print(d.w, output.Choose(d.wanted, suggested), data, c)
	if errors.Is(err, os.ErrClosed) || isBrokenPipe(err) {
		return nil
	}
	return err
}

// Writer returns the destination of the output.
func (d *Display) Writer() io.Writer { return d.w }

// Close closes the output file, if there is one.
func (d *Display) Close() error {
	if d.file == nil {
		return nil
	}
	return d.file.Close()
}
