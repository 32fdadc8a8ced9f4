// Package log writes slog records in Salt's log format: its ten levels, its
// %(...)s templates, and a console and a file with separate levels.
//
// With JSON lines, each attribute is a field of an object.
//
// The attribute "component" is the name of the logger (%(name)s), "jid" fills
// %(jid)s if the template has it, and all other attributes follow the message
// as key=value. Every record is written as a whole line. Terminal control
// characters are replaced, because messages may quote data of a peer.
//
// It imports only the standard library, so every package may use its levels.
package log

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
)

// Salt's levels that slog lacks.
const (
	LevelAll      slog.Level = -1000
	LevelGarbage  slog.Level = -12
	LevelTrace    slog.Level = -8
	LevelProfile  slog.Level = -2
	LevelCritical slog.Level = 12
	LevelQuiet    slog.Level = 1000
)

// levels are sorted from all to quiet, with Python's numbers.
var levels = []struct {
	name   string
	level  slog.Level
	number int
}{
	{"all", LevelAll, 0},
	{"garbage", LevelGarbage, 1},
	{"trace", LevelTrace, 5},
	{"debug", slog.LevelDebug, 10},
	{"profile", LevelProfile, 15},
	{"info", slog.LevelInfo, 20},
	{"warning", slog.LevelWarn, 30},
	{"error", slog.LevelError, 40},
	{"critical", LevelCritical, 50},
	{"quiet", LevelQuiet, 1000},
}

// LevelNames returns the names of all levels, from the most verbose to quiet.
func LevelNames() []string {
	names := make([]string, len(levels))
	for i, l := range levels {
		names[i] = l.name
	}
	return names
}

// ParseLevel returns the level of that name, in any case.
func ParseLevel(name string) (slog.Level, error) {
	for _, l := range levels {
		if strings.EqualFold(l.name, name) {
			return l.level, nil
		}
	}
	return 0, fmt.Errorf("log level %q is unknown: choose one of %s", name, strings.Join(LevelNames(), ", "))
}

// nameOf returns the name and number of the greatest known level not above l.
func nameOf(l slog.Level) (string, int) {
	i, exact := slices.BinarySearchFunc(levels, l, func(e struct {
		name   string
		level  slog.Level
		number int
	}, l slog.Level) int {
		return int(e.level) - int(l)
	})
	if !exact {
		i--
	}
	e := levels[max(i, 1)]
	return strings.ToUpper(e.name), e.number
}

// Salt's default templates and time formats.
const (
	ConsoleFormat = "[%(levelname)-8s] %(message)s"
	FileFormat    = "%(asctime)s,%(msecs)03d [%(name)-17s:%(lineno)-4d][%(levelname)-8s][%(process)d] %(message)s"
	ConsoleTime   = "%H:%M:%S"
	FileTime      = "%Y-%m-%d %H:%M:%S"
	JIDFormat     = "[JID: %(jid)s]"
)

// The forms of log lines.
const (
	FormatText = "text"
	FormatJSON = "json"
)

// Options are the options of logging.
type Options struct {
	Level      string `salt:"log_level" default:"warning" doc:"least level shown on the console: all, garbage, trace, debug, profile, info, warning, error, critical or quiet"`
	File       string `salt:"log_file" default:"" doc:"path of the log file; empty for none" change:"restart"`
	FileLevel  string `salt:"log_level_logfile" default:"" doc:"least level written to the log file; empty for that of the console"`
	Format     string `salt:"log_fmt_console" default:"[%(levelname)-8s] %(message)s" doc:"template of a line on the console" change:"restart"`
	FileFormat string `salt:"log_fmt_logfile" default:"%(asctime)s,%(msecs)03d [%(name)-17s:%(lineno)-4d][%(levelname)-8s][%(process)d] %(message)s" doc:"template of a line in the log file" change:"restart"`
	TimeFormat string `salt:"log_datefmt_console" default:"%H:%M:%S" doc:"format of %(asctime)s on the console" alias:"log_datefmt" change:"restart"`
	JIDFormat  string `salt:"log_fmt_jid" default:"[JID: %(jid)s]" doc:"format of %(jid)s in the lines of a job" change:"restart"`
	// Lines is the form of the lines: FormatText, by the templates, or FormatJSON.
	Lines string `salt:"log_format" default:"text" doc:"form of the lines of a daemon's log: text, by the templates of log_fmt_console and log_fmt_logfile, or json, one object with one field per value (Brine only)" change:"restart"`
	// Chosen reports whether the user set File.
	Chosen      bool
	FileTimeFmt string `salt:"log_datefmt_logfile" default:"%Y-%m-%d %H:%M:%S" doc:"format of %(asctime)s in the log file" change:"restart"`
}

// Log is a logger with its log file.
type Log struct {
	*slog.Logger
	file            *File
	console, inFile slog.LevelVar
}

// Open returns a logger for the options. The console may be nil, as for a
// daemon in the background. If the log file cannot be opened, Open returns an
// error and a Log that writes to the console only, so that a program may
// continue.
func Open(o Options, console io.Writer) (*Log, error) {
	l := &Log{}
	if err := l.SetLevels(o); err != nil {
		return nil, err
	}
	var sinks []Sink
	tmpl, err := NewTemplate(orElse(o.Format, ConsoleFormat), orElse(o.TimeFormat, ConsoleTime))
	if err != nil {
		return nil, fmt.Errorf("log_fmt_console: %w", err)
	}
	tmpl.jidFmt = o.JIDFormat
	if console != nil {
		sinks = append(sinks, Sink{W: console, Level: &l.console, Template: tmpl, JSON: o.Lines == FormatJSON})
	}
	tmpl, err = NewTemplate(orElse(o.FileFormat, FileFormat), orElse(o.FileTimeFmt, FileTime))
	if err != nil {
		return nil, fmt.Errorf("log_fmt_logfile: %w", err)
	}
	tmpl.jidFmt = o.JIDFormat
	if o.File != "" && l.inFile.Level() != LevelQuiet {
		if l.file, err = OpenFile(o.File); err == nil {
			sinks = append(sinks, Sink{W: l.file, Level: &l.inFile, Template: tmpl, JSON: o.Lines == FormatJSON})
		}
	}
	l.Logger = slog.New(NewHandler(sinks...))
	return l, err
}

// SetLevels changes the levels of all loggers to those of the options. A file
// that was not opened because its level was quiet stays closed.
func (l *Log) SetLevels(o Options) error {
	console, err := ParseLevel(orElse(o.Level, "warning"))
	if err != nil {
		return err
	}
	inFile := console
	if o.FileLevel != "" {
		if inFile, err = ParseLevel(o.FileLevel); err != nil {
			return err
		}
	}
	l.console.Set(console)
	l.inFile.Set(inFile)
	return nil
}

// Reopen opens the log file again by its path, after rotation.
func (l *Log) Reopen() error {
	if l.file == nil {
		return nil
	}
	return l.file.Reopen()
}

// Close closes the log file. Later records go to the console only.
func (l *Log) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
