package master

import (
	"brine/internal/base/ratelimit"
	"brine/internal/daemons/master/filequota"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/net/channel"
	"brine/internal/net/crypt"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// fileRoutes handles the file server's requests, and files that minions push.
type fileRoutes struct {
	cacheDir   string
	ctx        func() context.Context
	settings   *settings
	templates  *templates
	refuses    func() error // returns why no file is served, or nil
	background *sync.WaitGroup
	queue      *filequota.Queue
	log        *slog.Logger

	rateLimitedLog *ratelimit.Log
}

// serve passes a request to the file server. After an error it answers with an
// empty string, as Salt does.
func (f *fileRoutes) serve(c *channel.Call) { c.Reply(f.answer(c, 0)) }

// answer passes a request to the file server; room, if not 0, bounds a part of
// a file, in bytes.
func (f *fileRoutes) answer(c *channel.Call, room int64) any {
	load := c.Load.Clone()
	load.Set("cmd", c.Cmd)
	err := f.refuses()
	var v any
	if err == nil {
		v, err = f.settings.fileServer().RequestPart(f.ctx(), load, room)
	}
	if err != nil {
		f.failed(c, err)
		v = ""
	}
	return v
}

func (f *fileRoutes) failed(c *channel.Call, err error) {
	f.rateLimitedLog.Log(slog.LevelWarn, "file server request failed", "cmd", c.Cmd, "minion", c.ID, "path", c.Load.At("path"), "err", err)
}

// part answers with a part of a file when it is the minion's turn. The wait
// delays only the requesting peer.
func (f *fileRoutes) part(c *channel.Call) {
	turn := f.queue.Wait(c.ID, f.settings.fileServer().PartSize())
	f.background.Go(func() { c.ReplyThen(f.answer(c, turn.Size), turn.End) })
}

// share answers a shareable request of Brine minions.
func (f *fileRoutes) share(c *channel.Call) { f.replyShared(c, nil) }

func (f *fileRoutes) sharedPart(c *channel.Call) {
	turn := f.queue.Wait(c.ID, f.settings.fileServer().PartSize())
	f.background.Go(func() { f.replyShared(c, turn) })
}

// replyShared sends a shared answer. turn is nil for answers that do not use
// the queue.
func (f *fileRoutes) replyShared(c *channel.Call, turn *filequota.Turn) {
	load := c.Load.Clone()
	load.Set("cmd", c.Cmd)
	err := f.refuses()
	var v *value.Dict
	var s *crypt.Shared
	if err == nil {
		v, s, err = f.settings.fileServer().RequestShared(f.ctx(), load)
	}
	if err != nil {
		f.failed(c, err)
		v = value.NewDict(0)
	}
	if s == nil {
		c.Reply(v)
		turn.End()
		return
	}
	turn.Shares(s)
	c.ReplyShared(v, s, turn.End)
}

// masterOpts returns the options of the master that matter for states: the
// names of environments, but not their directories.
func (f *fileRoutes) masterOpts(c *channel.Call) {
	var in wire.MasterOpts
	wire.View(c.Load, &in)
	c.Reply(f.settings.stateOptions(in.EnvOnly))
}

// receive stores a part of a file that a minion pushes, below the minion's
// directory.
func (f *fileRoutes) receive(c *channel.Call) {
	var in wire.FilePush
	wire.View(c.Load, &in)
	err := f.store(c.ID, &in)
	if err != nil {
		f.rateLimitedLog.Log(slog.LevelError, "cannot store a file that a minion pushes", "minion", c.ID, "path", value.Str(in.Path), "err", err)
	}
	c.Reply(err == nil)
}

func (f *fileRoutes) store(id string, in *wire.FilePush) error {
	o := f.settings.options()
	if !o.FileRecv {
		return salt.Errorf(salt.Denied, "the option file_recv is not set")
	}
	loc, isInt := in.Loc.(int64)
	data := in.Data
	limit := int64(o.FileRecvMaxSize) << 20
	switch {
	case !isInt || loc < 0:
		return salt.Errorf(salt.Invalid, "loc is not an offset in a file")
	case int64(len(data)) > limit || loc > limit-int64(len(data)):
		return salt.Errorf(salt.Denied, "it is larger than file_recv_max_size, %d MB", o.FileRecvMaxSize)
	}
	name, err := pushName(in.Path)
	if err != nil {
		return err
	}
	dir := filepath.Join(f.cacheDir, "minions", id, "files")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir) // rejects symbolic links that leave it
	if err != nil {
		return err
	}
	defer root.Close()
	return writePart(root, name, part{at: loc, data: data, limit: limit})
}

// pushName reads the path of a pushed file, which is a list of names.
func pushName(path any) (string, error) {
	var parts []string
	for _, p := range value.Items(path) {
		s, ok := p.(string)
		if !ok || strings.ContainsRune(s, 0) {
			return "", salt.Errorf(salt.Invalid, "its path is no list of names")
		}
		parts = append(parts, s)
	}
	name := strings.Join(parts, "/")
	if len(parts) == 0 || !filepath.IsLocal(name) || filepath.Clean(name) == "." {
		return "", salt.Errorf(salt.Invalid, "its path leads out of the minion's directory")
	}
	return filepath.Clean(name), nil
}

// part is a part of a pushed file.
type part struct {
	at    int64 // offset claimed by the minion; 0 restarts the file
	data  []byte
	limit int64 // of the whole file, in bytes
}

// writePart writes a part at its offset. Parts at any other offset are
// appended, as in Salt, so the limit is compared with the size on disk.
func writePart(root *os.Root, name string, p part) error {
	if dir := filepath.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	st, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return salt.Errorf(salt.Exists, "there is something else than a file")
	case p.at > 0 && st.Size() > p.limit-int64(len(p.data)):
		return salt.Errorf(salt.Denied, "with this part it is larger than file_recv_max_size, %d MB", p.limit>>20)
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if p.at == 0 {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	w, err := root.OpenFile(name, flags, 0o600)
	if err != nil {
		return err
	}
	_, err = bytes.NewReader(p.data).WriteTo(w)
	if e := w.Close(); err == nil {
		err = e
	}
	return err
}
