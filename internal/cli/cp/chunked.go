package cp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"brine/internal/call/client"
	"brine/internal/cli/frame"
	"brine/internal/py/value"
)

// copying is the state of a copy in chunks.
type copying struct {
	*program
	tree *tree
	all  *value.Dict // minion id -> path on the minion -> true or the error
}

// chunked sends all files and directories and returns the result of each.
func (p *program) chunked(ctx context.Context) (*value.Dict, error) {
	t := &tree{log: p.Log.Logger}
	for _, s := range p.sources {
		if err := t.add(s); err != nil {
			return nil, exit{frame.ExitIncomplete, err.Error()}
		}
	}
	slices.SortFunc(t.empty, func(a, b item) int { return bytes.Compare([]byte(a.path), []byte(b.path)) })
	c := &copying{p, t, value.NewDict(8)}
	into := len(t.empty) > 0 || len(t.files) > 1 || len(p.dest) > 0 && (p.dest[len(p.dest)-1] == '/' || p.dest[len(p.dest)-1] == '\\')
	for _, f := range t.files {
		if err := c.file(ctx, f, f.remote(p.dest, into)); err != nil {
			return nil, err
		}
	}
	for _, d := range t.empty {
		to := d.remote(p.dest, into)
		results, err := c.send(ctx, p.job("cp.recv_chunked", to, nil))
		if err != nil {
			return nil, err
		}
		for _, r := range results {
			if !r.Absent {
				c.note(r.ID, to, r.Return)
			}
		}
	}
	return c.all, nil
}

// send runs one job.
func (c *copying) send(ctx context.Context, j client.Job) ([]client.Result, error) {
	_, results, err := c.Client.Call(ctx, j)
	return results, err
}

func (c *copying) note(id, to string, what any) {
	d := c.all.Dict(id)
	if d == nil {
		d = value.NewDict(1)
		c.all.Set(id, d)
	}
	d.Set(to, what)
}

// file sends one file to the minions that accept it.
func (c *copying) file(ctx context.Context, f item, to string) error {
	r, err := f.open()
	if err != nil {
		return exit{frame.ExitIncomplete, err.Error()}
	}
	defer r.Close()
	progress := c.newProgress(f)
	defer progress.Clear()
	buf := make([]byte, c.set.CP.ChunkSize)
	var takers []string
	for n, last := 1, false; !last; n++ {
		size, err := io.ReadFull(r, buf)
		last = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		switch {
		case err != nil && !last:
			return exit{frame.ExitIncomplete, fmt.Sprintf("cannot read %s: %v", f.path, err)}
		case size == 0 && n > 1:
			return nil
		}
		j := c.job("cp.recv_chunked", to, c.encode(buf[:size]), n > 1, !c.opts.Plain, f.mode)
		if n > 1 {
			j.Target, j.Type = value.Strings(takers), "list"
		}
		results, err := c.send(ctx, j)
		if err != nil {
			return err
		}
		if takers = c.taken(results, to, n); len(takers) == 0 {
			return nil
		}
		progress.add(size)
	}
	return nil
}

// taken records the results of chunk n, and returns the minions for which to continue.
func (c *copying) taken(results []client.Result, to string, n int) []string {
	var takers []string
	for _, r := range results {
		switch {
		case !r.Absent:
			c.note(r.ID, to, r.Return)
			if r.Return == true {
				takers = append(takers, r.ID)
			}
		case n > 1:
			c.note(r.ID, to, fmt.Sprintf("No response to chunk %d. File partially transferred.", n))
		}
	}
	return takers
}

// encode encodes a chunk for cp.recv_chunked. It returns bytes, since minions parse a string that
// ends with an equals sign as a keyword argument.
func (c *copying) encode(chunk []byte) []byte {
	if !c.opts.Plain {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(chunk) // to memory: cannot fail
		z.Close()
		chunk = b.Bytes()
	}
	return base64.StdEncoding.AppendEncode(make([]byte, 0, base64.StdEncoding.EncodedLen(len(chunk))), chunk)
}

// remote returns the destination of a file or directory. into means that dest is a directory.
func (f item) remote(dest string, into bool) string {
	switch {
	case f.path != f.source:
		return path.Join(dest, path.Base(f.source), f.path[len(f.source):])
	case into:
		return path.Join(dest, path.Base(f.path))
	}
	return dest
}

// progress is a line on a terminal that shows how much of a file is sent.
type progress struct {
	*frame.Line
	name       string
	sent, size int64
}

// newProgress returns the line for a file of more than one chunk.
func (c *copying) newProgress(f item) *progress {
	if f.size <= int64(c.set.CP.ChunkSize) {
		return &progress{}
	}
	return &progress{Line: c.Env.StderrLine(), name: path.Base(f.path), size: f.size}
}

func (p *progress) add(n int) {
	if p.Line != nil {
		p.sent += int64(n)
		p.Show(fmt.Sprintf("%.50s %d%%", p.name, min(100, 100*p.sent/p.size)))
	}
}
