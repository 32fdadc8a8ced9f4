package voter

import (
	"context"
	"fmt"
	"log/slog"
)

// raftLog passes the messages of the raft library to the log at level debug: leaders change often, and this package itself logs what an
// operator must know.
type raftLog struct{ log *slog.Logger }

func (l raftLog) put(level slog.Level, text string) {
	l.log.Log(context.Background(), level, "raft: "+text)
}

func (l raftLog) Debug(v ...any)                   {}
func (l raftLog) Debugf(format string, v ...any)   {}
func (l raftLog) Info(v ...any)                    { l.put(slog.LevelDebug, fmt.Sprint(v...)) }
func (l raftLog) Infof(format string, v ...any)    { l.put(slog.LevelDebug, fmt.Sprintf(format, v...)) }
func (l raftLog) Warning(v ...any)                 { l.put(slog.LevelDebug, fmt.Sprint(v...)) }
func (l raftLog) Warningf(format string, v ...any) { l.put(slog.LevelDebug, fmt.Sprintf(format, v...)) }
func (l raftLog) Error(v ...any)                   { l.put(slog.LevelWarn, fmt.Sprint(v...)) }
func (l raftLog) Errorf(format string, v ...any)   { l.put(slog.LevelWarn, fmt.Sprintf(format, v...)) }
func (l raftLog) Fatal(v ...any)                   { panic(brokenLog(fmt.Sprint(v...))) }
func (l raftLog) Fatalf(format string, v ...any)   { panic(brokenLog(fmt.Sprintf(format, v...))) }
func (l raftLog) Panic(v ...any)                   { panic(brokenLog(fmt.Sprint(v...))) }
func (l raftLog) Panicf(format string, v ...any)   { panic(brokenLog(fmt.Sprintf(format, v...))) }

// brokenLog is an inconsistency in this voter's log that the library found.
type brokenLog string
