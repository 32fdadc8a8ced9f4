package event

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"brine/internal/base/salt"
)

// Server offers a bus to other programs.
type Server struct {
	bus     *Bus
	log     *slog.Logger
	sockets Sockets
	pub     *acceptor
	pull    *acceptor
	files   []ownFile
	backlog *backlog
	keeper  keeper
	remove  func()
	conns   sync.WaitGroup
	readers readerCount
	open    context.Context // of the connections
	end     context.CancelCauseFunc
}

// ownFile is a socket file that this server created.
type ownFile struct {
	path string
	info fs.FileInfo
}

// Listen binds the sockets. Files of a dead process are replaced; a running process is an error of
// kind Exists.
func Listen(bus *Bus, at Sockets, o Options, log *slog.Logger) (*Server, error) {
	if err := at.check(); err != nil {
		return nil, err
	}
	s := &Server{bus: bus, log: log, sockets: at, backlog: newBacklog(o.PubHWM, o.PubBuffer<<20)}
	s.keeper.backlog = s.backlog
	s.open, s.end = context.WithCancelCause(context.Background())
	var err error
	if s.pub, err = s.bind(at.Pub, fs.FileMode(at.PubMode), s.reader); err == nil {
		s.pull, err = s.bind(at.Pull, 0o600, s.writer)
	}
	for _, path := range at.Markers {
		if err == nil {
			err = makeMarker(path)
		}
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	if at.Network == "tcp" {
		s.sockets.Pub, s.sockets.Pull = s.pub.addr.String(), s.pull.addr.String()
	}
	s.remove = bus.Handle(s.publish)
	return s, nil
}

// bind creates one of the two sockets. enter gets each connection, and returns
// what serves it.
func (s *Server) bind(addr string, mode fs.FileMode, enter func(net.Conn) (serve func())) (*acceptor, error) {
	l, err := s.listen(addr, mode)
	if err != nil {
		return nil, err
	}
	d, err := newAcceptor(l, func(conn net.Conn) {
		serve := enter(conn)
		s.conns.Go(func() {
			stop := context.AfterFunc(s.open, func() { conn.Close() })
			defer stop()
			defer conn.Close()
			serve()
		})
	})
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot wait for programs at the event bus: %w", err)
	}
	return d, nil
}

// Sockets returns the addresses of the server; ports are real even if 0 was configured.
func (s *Server) Sockets() Sockets { return s.sockets }

func (s *Server) listen(addr string, mode fs.FileMode) (net.Listener, error) {
	if s.sockets.Network == "tcp" {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, salt.Errorf(salt.Unavailable, "cannot listen for programs that use the event bus: %w", err)
		}
		return l, nil
	}
	if err := os.MkdirAll(filepath.Dir(addr), 0o755); err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot create the directory of the event bus (sock_dir): %w", err)
	}
	// A user who can write to the directory can replace this socket.
	if st, err := os.Stat(filepath.Dir(addr)); err == nil && st.Mode().Perm()&0o002 != 0 && st.Mode()&fs.ModeSticky == 0 {
		return nil, salt.Errorf(salt.Denied, "the directory of the event bus (sock_dir) %s is world-writable: run chmod 755 on it", filepath.Dir(addr))
	}
	if err := removeStale(addr); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// On Linux the file gets the mode of the socket, so that no program can connect before the
		// chmod below.
		return c.Control(func(fd uintptr) { syscall.Fchmod(int(fd), uint32(mode.Perm())) })
	}}
	l, err := lc.Listen(context.Background(), "unix", addr)
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot create the socket of the event bus: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // by then it may be a successor's
	info, err := os.Lstat(addr)
	if err == nil {
		s.files = append(s.files, ownFile{addr, info})
		err = os.Chmod(addr, mode)
	}
	if err != nil {
		l.Close()
		return nil, salt.Errorf(salt.Unavailable, "cannot set up the socket of the event bus: %w", err)
	}
	return l, nil
}

// removeStale removes the socket of a dead process.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory", path)
	}
	if err == nil && info.Mode().Type() == fs.ModeSocket {
		if c, dialErr := net.DialTimeout("unix", path, time.Second); dialErr == nil {
			c.Close()
			return salt.Errorf(salt.Exists, "another process serves the event bus at %s; stop it or set another sock_dir", path)
		}
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot replace an old socket of the event bus: %w", err)
	}
	return nil
}

// makeMarker creates an empty file unless there is one.
func makeMarker(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { // with tcp there is no socket in it
		return salt.Errorf(salt.Unavailable, "cannot create sock_dir: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot create the file by which Salt's programs detect a running master: %w", err)
	}
	return f.Close()
}

// Close unbinds a server whose Serve was never called.
func (s *Server) Close() error {
	if s.remove != nil {
		s.remove()
	}
	for _, d := range []*acceptor{s.pub, s.pull} {
		if d != nil {
			d.close()
		}
	}
	s.end(nil)
	for _, f := range s.files {
		if now, err := os.Lstat(f.path); err == nil && os.SameFile(now, f.info) {
			os.Remove(f.path)
		}
	}
	return nil
}

// drainTime is how long the end of a server waits for slow readers.
const drainTime = time.Second

// Serve accepts programs until ctx ends. Then it sends readers the events that are left, closes all
// and removes the socket files. It returns after every goroutine of the server has ended.
func (s *Server) Serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		s.backlog.drain(drainTime)
		s.end(nil)
	})()
	s.keeper.start()
	defer s.keeper.stop()
	var loops sync.WaitGroup
	for _, d := range []*acceptor{s.pub, s.pull} {
		loops.Go(func() {
			if err := d.run(s.log); err != nil {
				s.end(salt.Errorf(salt.Internal, "the event bus stopped listening: %w", err))
			}
		})
	}
	<-s.open.Done()
	s.Close()
	loops.Wait()
	s.conns.Wait()
	if err := context.Cause(s.open); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// publish sends an event to all readers.
func (s *Server) publish(e *Event) {
	s.pub.admit()
	keep := strings.HasPrefix(e.Tag, "salt/job/") && strings.Contains(e.Tag, "/ret/") && s.backlog.keepsEarly()
	if !keep && !s.backlog.wanted() {
		return
	}
	frame, err := e.Frame()
	if err != nil {
		s.log.Error("cannot encode an event for other programs", "tag", e.Tag, "err", err)
		return
	}
	if s.backlog.add(frame, keep) && s.keeper.syndic.Load() {
		s.log.Warn("too many returns while no syndic of Salt is connected; the master above will not get the next ones")
	}
}

const (
	batchFrames = 64
	batchBytes  = 256 << 10
)

// readerCount counts the readers that may wait for any event.
type readerCount struct {
	mu     sync.Mutex
	n      int
	change func(n int)
}

func (r *readerCount) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n += n
	if r.change != nil {
		r.change(r.n)
	}
}

// OnReaders calls fn now and at each change with the number of programs that read events and have
// not declared (Reader.OwnOnly) that they wait only for their own. fn must be quick.
func (s *Server) OnReaders(fn func(n int)) {
	s.readers.mu.Lock()
	defer s.readers.mu.Unlock()
	s.readers.change = fn
	fn(s.readers.n)
}

// reader registers a reader in the backlog at once.
func (s *Server) reader(conn net.Conn) func() {
	cur := s.backlog.open()
	s.readers.add(1)
	return func() { s.serveReader(conn, cur) }
}

// maxReaderFrame bounds a message of a reader.
const maxReaderFrame = 4096

// hearReader waits until a reader has gone. Stock readers send nothing; Brine's say which events
// they wait for.
func (s *Server) hearReader(conn net.Conn, w *waker) {
	any := true
	defer func() {
		if any {
			s.readers.add(-1)
		}
	}()
	frames := NewFrameReader(conn, maxReaderFrame)
	for {
		body, err := frames.Next()
		if err != nil {
			break
		}
		if string(body) == tagSyndic+tagEnd {
			s.keeper.noSyndic()
			continue
		}
		own, all := string(body) == tagOwnOnly+tagEnd, string(body) == tagAll+tagEnd
		if own || all {
			w.identified()
			s.keeper.brine(w)
		}
		if own && any || all && !any {
			any = all
			s.readers.add(map[bool]int{true: 1, false: -1}[all])
		}
	}
	io.Copy(io.Discard, conn)
}

// serveReader sends events until the other side disconnects.
func (s *Server) serveReader(conn net.Conn, cur *cursor) {
	var gone sync.WaitGroup
	w := newWaker(conn)
	gone.Go(func() {
		defer s.backlog.remove(cur)
		defer conn.Close() // ends a blocked write
		defer s.keeper.gone(w)
		s.hearReader(conn, w)
	})
	defer gone.Wait()
	defer conn.Close()
	defer w.stop()
	defer time.AfterFunc(nameTime, func() { s.keeper.stock(w) }).Stop()
	var batch [][]byte
	if len(cur.early) > 0 && !w.isBrine(nameTime) {
		batch = append(batch, cur.early...)
		if err := w.write(batch); err != nil {
			return
		}
	}
	cur.early = nil
	for {
		var ok bool
		if batch, ok = s.backlog.take(cur, batch[:0], batchFrames, batchBytes); !ok {
			break
		}
		if err := w.write(batch); err != nil {
			break
		}
		clear(batch)
	}
	if n := s.backlog.missed(cur); n > 0 {
		s.log.Warn("slow event reader missed events", "missed", n)
	}
}

func (s *Server) writer(conn net.Conn) func() {
	return func() { s.serveWriter(conn) }
}

// serveWriter fires the received events on the bus.
func (s *Server) serveWriter(conn net.Conn) {
	frames := frameReader{r: conn}
	for {
		body, err := frames.next()
		if err != nil {
			if s.open.Err() == nil && err != io.EOF {
				s.log.Warn("disconnected a program that sends events", "err", err)
			}
			return
		}
		e, err := parseBody(body)
		if err != nil {
			s.log.Warn("dropped an event of another program", "err", err)
			continue
		}
		if !e.Data.Has("_stamp") {
			if err := s.bus.Fire(e.Tag, e.Data); err != nil {
				s.log.Warn("dropped an event of another program", "err", err)
			}
			continue
		}
		s.bus.forward(e)
	}
}
