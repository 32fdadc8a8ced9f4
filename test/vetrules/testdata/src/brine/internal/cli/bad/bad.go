// Package bad has one finding of each rule, and what looks like one.
package bad

import (
	"errors"
	"fmt"
	"io"
	_ "io/ioutil" // want `io/ioutil is not used here: use io and os`
	"log/slog"
	"os"

	"brine/internal/base/ratelimit"
)

var errGone = errors.New("gone")

type failure struct{}

func (*failure) Error() string { return "failure" }

func required(given map[string]string) error {
	for name, v := range given { // want `the first error of a map differs from run to run`
		if v == "" {
			return fmt.Errorf("%s is missing", name)
		}
	}
	for range given {
		return nil
	}
	for _, name := range []string{"a", "b"} {
		if given[name] == "" {
			return fmt.Errorf("%s is missing", name)
		}
	}
	return nil
}

func compare(err error, log *slog.Logger) error {
	if err == errGone { // want `compare errors with errors.Is`
		return nil
	}
	if err == errGone { // exact: wrapped ones are another matter
		return nil
	}
	if err == nil || err == io.EOF || errors.Is(err, errGone) {
		return nil
	}
	if _, ok := err.(*failure); ok { // want `use errors.As`
		return fmt.Errorf("%s: %v", "it", err) // want `wrap the error by %w`
	}
	log.Warn("a message", "path", "/x", "err", err)
	log.With("error", err).Warn("a message", "file", "/x")  // want `the key "error" of a log record is called "err" elsewhere` `the key "file" of a log record is called "path" elsewhere`
	log.Info("a message", err.Error(), 1, "two words", "x") // want `the key of a log record is not a constant` `the key "two words" of a log record is not a word in lower case`
	var limited *ratelimit.Log
	limited.Log(slog.LevelWarn, "a message", slog.String("peer", "x"), "path", "/x")
	limited.Log(slog.LevelWarn, "a message", "minion_id", "x") // want `the key "minion_id" of a log record is called "minion" elsewhere`
	return fmt.Errorf("%w: %v", errGone, err)
}

func move() error {
	if err := os.Rename("a", "b"); err != nil { // want `replace files with atomicfile`
		return err
	}
	return os.Rename("c", "d") // rename: moves a file
}
