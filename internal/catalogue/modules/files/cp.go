package files

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// maxInflated bounds the size of one decompressed chunk, in bytes. A chunk of
// salt-cp holds 96 KiB unless the master is configured otherwise.
const maxInflated = 32 << 20

type cp struct{}

func init() { units.Declare("cp", cpModule) }

func cpModule() fn.Module {
	return fn.Module{Name: "cp", Doc: `Fetch files from the master and elsewhere, keep them, and receive them.`, Funcs: append(fetchFunctions(), []fn.Func{
		fn.Of("recv", cp{}.recv, `Write files that salt-cp sends, whole, and say of each whether it was written.
			Each file is replaced at once or left as it was. One that exists keeps its mode and owner.`,
			fn.Example("salt '*' cp.recv '{motd: hello}' /etc/motd")),
		fn.Of("recv_chunked", cp{}.recvChunked, `Write a part of a file that salt-cp sends in chunks, or make a directory.
			The first chunk replaces the file, further ones are appended. A chunk that does not fit on the disk leaves the file as it was before it.`,
			fn.Example("salt '*' cp.recv_chunked /etc/motd aGVsbG8K compressed=False")),
	}...)}
}

type recvArgs struct {
	Files *value.Dict `salt:"files" doc:"map of the files' names at the sender to their texts"`
	Dest  string      `salt:"dest" doc:"file or directory to write to"`
}

func (cp) recv(_ context.Context, c *fn.Call, a recvArgs) (any, error) {
	written := value.NewDict(a.Files.Len())
	for name, text := range a.Files.All() {
		final := place(value.Str(name), a.Dest)
		if final == "" {
			return "Destination unavailable", nil
		}
		data, ok := content(text)
		err := errors.New("its content is no text")
		if ok {
			err = atomicfile.Replace(final, -1, func(w io.Writer) error { _, err := w.Write(data); return err })
		}
		if err != nil {
			c.Log.Error("cannot write a file sent by salt-cp", "path", final, "err", err)
		}
		written.Set(final, err == nil)
	}
	return written, nil
}

// place returns the path to which a file is copied, or "" if its directory
// does not exist.
func place(name, dest string) string {
	base := path.Base(name)
	switch {
	case isDir(dest):
		return strings.TrimSuffix(dest, "/") + "/" + base
	case path.Base(dest) == base && !strings.HasSuffix(dest, "/"), isDir(path.Dir(dest)):
		return dest
	}
	return ""
}

func isDir(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.IsDir()
}

func content(v any) ([]byte, bool) {
	switch x := v.(type) {
	case string:
		return []byte(x), true
	case []byte:
		return x, true
	}
	return nil, false
}

type chunkArgs struct {
	Dest       string `salt:"dest" doc:"file to write, or directory to make"`
	Chunk      any    `salt:"chunk" doc:"content in base64; null makes a directory"`
	Append     bool   `salt:"append" doc:"add to the file instead of replacing it" default:"false"`
	Compressed bool   `salt:"compressed" doc:"the content is compressed by gzip" default:"true"`
	Mode       *int   `salt:"mode" doc:"permissions of the file as a decimal number, for the first chunk" default:"null"`
}

func (cp) recvChunked(_ context.Context, c *fn.Call, a chunkArgs) (any, error) {
	if a.Chunk == nil {
		if st, err := os.Stat(a.Dest); err == nil && !st.IsDir() {
			return "Path exists and is a file", nil
		}
		return done(c, os.MkdirAll(a.Dest, 0o777))
	}
	text, ok := content(a.Chunk)
	if !ok {
		return nil, fn.Invalidf("chunk must be text in base64, not %s", value.TypeName(a.Chunk))
	}
	raw := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(raw, text)
	if err != nil {
		return nil, fn.Invalidf("chunk is not base64: %w", err)
	}
	pour := func(w io.Writer) error { return inflate(w, raw[:n], a.Compressed) }
	if a.Append {
		return done(c, extend(a.Dest, pour))
	}
	mode := -1
	if a.Mode != nil {
		mode = *a.Mode & 0o7777
	}
	err = atomicfile.Replace(a.Dest, mode, pour)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(path.Dir(a.Dest), 0o777); err == nil {
			err = atomicfile.Replace(a.Dest, mode, pour)
		}
	}
	return done(c, err)
}

// done returns true, or the error as the string that salt-cp shows.
func done(c *fn.Call, err error) (any, error) {
	if err != nil {
		c.SetRetcode(1)
		return osText(err), nil
	}
	return true, nil
}

// osText formats a system error as Python does, since users of salt-cp know
// these messages and may search for them.
func osText(err error) string {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err.Error()
	}
	text := errno.Error()
	text = fmt.Sprintf("[Errno %d] %s", int(errno), strings.ToUpper(text[:1])+text[1:])
	var p *fs.PathError
	if errors.As(err, &p) && p.Op != "write" {
		text += ": " + value.Repr(p.Path)
	}
	return text
}

// inflate writes a chunk to w, decompressed if necessary, without holding all
// of it in memory.
func inflate(w io.Writer, chunk []byte, compressed bool) error {
	if !compressed {
		_, err := w.Write(chunk)
		return err
	}
	z, err := gzip.NewReader(bytes.NewReader(chunk))
	if err != nil {
		return fmt.Errorf("the chunk cannot be unpacked: %w", err)
	}
	n, err := io.Copy(w, io.LimitReader(z, maxInflated+1))
	switch {
	case n > maxInflated:
		return fmt.Errorf("the chunk unpacks to more than %d bytes: lower salt_cp_chunk_size", maxInflated)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the chunk cannot be unpacked: %w", err)
	}
	return err
}

// extend appends to a file. If that fails, it restores the old length.
func extend(dest string, pour func(io.Writer) error) (err error) {
	final, _, err := atomicfile.Resolve(dest)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(final, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if err = pour(f); err != nil {
		if e := f.Truncate(size); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}
