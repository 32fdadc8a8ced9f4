// Package session is what salt and salt-run share: the master's configuration, the log, the output,
// and the connection to the master on this machine. It prints nothing except prompts for
// credentials.
package session

import (
	"errors"
	"log/slog"
	"os"

	"brine/internal/base/log"
	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/call/output"
	"brine/internal/cli/frame"
	"brine/internal/daemons/config"
	"brine/internal/daemons/master"
	"brine/internal/daemons/usermodules"
	"brine/internal/files/extmods"
)

// Options are the command line options of both programs.
type Options struct {
	frame.Config
	frame.Saltfile
	frame.HardCrash
	frame.StrictExit
	frame.NoParse
	frame.ArgsStdin
	frame.Logging `group:"Logging Options"`
	frame.Output  `group:"Output Options"`
	frame.EAuth   `group:"External Authentication" doc:"For users that the master does not know by the accounts of this machine."`
}

// Settings are options of the master's configuration that both programs need in addition to
// config.Master.
type Settings struct {
	Client    client.Options
	TokenFile tokenOptions
}

// Session is the opened state of a program. Close must be called.
type Session struct {
	Env      *frame.Env
	Conf     *config.Master
	Tree     *config.Tree
	Settings Settings
	Log      *log.Log
	Show     *frame.Display
	Client   *client.Client

	opts       *Options
	local      *client.Local
	outputters usermodules.Outputters
}

// UsageError is a usage error found only after parsing.
type UsageError struct{ error }

// Unwrap returns the cause.
func (e UsageError) Unwrap() error { return e.error }

// Open reads the configuration and opens the session. tune, if not nil, applies options of the
// program to the output options.
func Open(env *frame.Env, inv *frame.Invocation, o *Options, tune func(*output.Options)) (*Session, error) {
	s := &Session{Env: env, opts: o}
	dir := o.Resolve(env)
	if !inv.Given("config_dir") {
		dir = "" // let config.Path decide: the environment has more than one variable for it
	}
	if err := s.load(config.Path(config.MasterKind, dir, env.Getenv)); err != nil {
		return nil, err
	}
	var err error
	lo := s.Conf.Log
	lo.File = "" // the configured file is the daemon's
	if s.Log, err = o.Logging.Open(env, lo, &o.Output); err != nil {
		return nil, UsageError{err}
	}
	s.Log.Debug("configuration read", "path", s.Conf.Files.ConfFile)
	out := s.Conf.Output
	if tune != nil {
		tune(&out)
	}
	if s.Show, err = o.Output.Open(env, out, s.Log.Logger); err != nil {
		s.Log.Close()
		return nil, UsageError{err}
	}
	if err := s.connect(env.Getenv, s.Log.Logger); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

var errNoOutputters = errors.New("there are no outputters in Python")

// UseOutputters enables outputters in Python. become switches this process to the master's user.
// That user may be able to write the modules, so root must not run them.
func (s *Session) UseOutputters(become func(user string) error) {
	s.outputters.Modules = func() (*usermodules.Modules, error) {
		// Most masters have none, so check that before assembling their configuration.
		if l := extmods.Scan(extmods.Dirs(s.Tree.Values, s.Conf.Files.ExtensionModules, "output")); len(l.Paths) == 0 {
			return nil, errNoOutputters
		}
		cfg, err := s.Conf.Parts(s.Tree)
		if err != nil {
			return nil, err
		}
		return master.OwnOutputters(&cfg, s.Log.Logger), nil
	}
	s.outputters.Before = func() error {
		if os.Geteuid() != 0 {
			return nil
		}
		return become(s.Conf.Files.User)
	}
	s.Show.Use(&s.outputters)
}

// load reads the configuration. It leaves warnings about it to the daemon.
func (s *Session) load(path string) error {
	quiet := slog.New(slog.DiscardHandler)
	tree, err := config.Load(path, config.MasterKind, quiet)
	if err != nil {
		return err
	}
	machine := config.ThisMachine()
	machine.FullName = func(name string) string { return name } // no DNS lookup
	s.Tree = tree
	if s.Conf, err = config.NewMaster(tree, machine, quiet); err != nil {
		return err
	}
	return config.Decode(tree, &s.Settings)
}

// connect creates the client. It sends nothing yet.
func (s *Session) connect(getenv func(string) string, log *slog.Logger) error {
	place, err := s.Conf.Place()
	if err != nil {
		return err
	}
	if s.local, err = client.NewLocal(place, client.Caller(getenv), log); err != nil {
		return err
	}
	s.Client = client.New(s.Settings.Client, s.Conf.Files.ConfFile, s.local, s.local, log)
	return nil
}

// LocalMaster returns a client of the master on this machine, for a program that is not the
// master's own, such as the minion. path is the master's configuration file. Nothing is sent yet;
// close must be called.
func LocalMaster(path string, getenv func(string) string, log *slog.Logger) (c *client.Client, close func(), err error) {
	s := &Session{}
	if err := s.load(path); err != nil {
		return nil, nil, err
	}
	if err := s.connect(getenv, log); err != nil {
		return nil, nil, err
	}
	return s.Client, func() { s.local.Close() }, nil
}

// Close closes everything that Open opened.
func (s *Session) Close() {
	if s.local != nil {
		s.local.Close()
	}
	s.outputters.Close()
	s.Show.Close()
	s.Log.Close()
}

// Fail reports an error of Open and returns the exit code.
func Fail(env *frame.Env, c *frame.Command, err error) int {
	var usage UsageError
	if errors.As(err, &usage) {
		return c.Fail(env, err.Error())
	}
	env.Errorf("%s: error: %s", c.Name, err)
	switch salt.KindOf(err) {
	case salt.Denied, salt.Invalid: // mainly an invalid configuration
		return config.ExitCode(err)
	}
	return frame.ExitNoReturn
}
