package cp

import (
	"context"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"brine/internal/cli/frame"
	"brine/internal/py/value"
)

// maxWhole bounds the total size in bytes of the files of one job, because masters and minions have
// several copies of it in memory.
const maxWhole = 8 << 20

// whole sends all files in one job and returns the result of each minion. Missing files are left
// out, as in Salt.
func (p *program) whole(ctx context.Context) (*value.Dict, error) {
	texts, total := value.NewDict(len(p.sources)), 0
	for _, path := range p.sources {
		st, err := os.Stat(path)
		switch {
		case err != nil:
			p.Log.Info("skipping a source", "err", err)
			continue
		case st.IsDir():
			fmt.Fprintf(p.Env.Stdout, "%s is a directory, only files are supported in non-chunked mode. Use \"--chunked\" command line argument.\n", path)
			return nil, exit{frame.ExitFailure, "ERROR: nothing was copied"}
		case !st.Mode().IsRegular():
			continue
		}
		text, err := readText(path, maxWhole-total)
		if err != nil {
			return nil, exit{frame.ExitIncomplete, err.Error()}
		}
		total += len(text)
		texts.Set(path, text)
	}
	_, results, err := p.Client.Call(ctx, p.job("cp.recv", texts, p.dest))
	if err != nil {
		return nil, err
	}
	all := value.NewDict(len(results))
	for _, r := range results {
		if !r.Absent {
			all.Set(r.ID, r.Return)
		}
	}
	return all, nil
}

// readText reads a text file that is not larger than limit.
func readText(path string, limit int) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("the file %s is not available: %w", path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot read %s: %w", path, err)
	case len(data) > limit:
		return "", fmt.Errorf("%s is too large to send at once (%d MiB in total): send it in chunks with -C", path, maxWhole>>20)
	case !utf8.Valid(data):
		return "", fmt.Errorf("%s is not UTF-8 text: send it with -C, which takes files of any kind", path)
	}
	return string(data), nil
}
