package python

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"brine/internal/call/fn"
	"brine/internal/py/marshal"
	"brine/internal/py/value"
)

const (
	// maxFrame bounds one message in bytes. A larger result would not fit into a message to the
	// master either.
	maxFrame = 64 << 20
	// flagMarked is the bit of a frame that contains values unknown to marshal.
	flagMarked = 1
	// farewell is the time that a helper has to end after its pipe was closed.
	farewell = 2 * time.Second
	// maxServing bounds the concurrent requests of Python; each Python thread has at most one.
	maxServing = 1000
	// startLimit is the timeout of the start of Python.
	startLimit = time.Minute
)

var (
	errMalformed = errors.New("the Python helper sent a message that cannot be read")
	errFlood     = fmt.Errorf("the Python helper has made more than %d requests at the same time", maxServing)
)

// helper is one Python process.
type helper struct {
	pool       *Pool
	cmd        *exec.Cmd
	pid        int
	log        *slog.Logger
	out        *os.File // requests to the helper
	generation uint64
	rest       *time.Timer // ends the helper while it is idle
	gone       chan struct{}

	writing sync.Mutex

	environment sync.Mutex
	environ     []string // environment of this process, as the helper has it

	mu      sync.Mutex
	last    int64
	answers map[int64]chan answer
	envs    map[int64]*activity
	serving int      // number of running requests of Python
	why     error    // why this process ended the helper
	printed []string // last lines of its output
	silent  chan struct{}
}

// answer is the result of a request.
type answer struct {
	value   any
	retcode int
	err     error
}

// activity is a call in progress, needed for the requests that Python makes during it.
type activity struct {
	ctx context.Context
	env *Env
}

// start starts a helper and waits until it has loaded the shim.
func (p *Pool) start(ctx context.Context) (*helper, error) {
	program, err := p.cfg.Options.program()
	if err != nil {
		return nil, err
	}
	shim, err := installShim(p.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot write the Python helper to %s: %w", p.cfg.Dir, err)
	}
	h := &helper{pool: p, log: p.cfg.Log, gone: make(chan struct{}), silent: make(chan struct{}), answers: map[int64]chan answer{}, envs: map[int64]*activity{},
		rest: time.NewTimer(0)}
	ready := make(chan answer, 1)
	h.answers[0] = ready
	if err := h.spawn(program, shim); err != nil {
		return nil, err
	}
	// If the process has already ended, its pipe is closed; report how it ended instead.
	if err := h.send("settings", p.settings()); err != nil && !pipeClosed(err) {
		h.kill(err)
		return nil, err
	}
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case a := <-ready:
		if a.err != nil {
			h.kill(a.err)
			return nil, a.err
		}
		h.log.Debug("started a Python helper", "pid", h.pid, "python", program, "version", value.Repr(a.value))
		return h, nil
	case <-h.gone:
		return nil, fn.Errorf("cannot run Python modules: %s ended at its start (%s): %s", program, h.end(), h.tail())
	case <-ctx.Done():
		h.kill(context.Cause(ctx))
		return nil, context.Cause(ctx)
	case <-limit.C:
		h.kill(errors.New("it did not start in time"))
		return nil, fn.Errorf("cannot run Python modules: %s did not start within %v", program, startLimit)
	}
}

// settings returns the first message to a helper.
func (p *Pool) settings() *value.Dict {
	loaders := value.NewDict(0)
	for kind, f := range p.cfg.Loaders() {
		claims := value.NewDict(len(f.Claims))
		for name, stems := range f.Claims {
			claims.Set(name, value.Strings(stems))
		}
		loaders.Set(kind, value.ListOf(value.From(f.Paths), claims))
	}
	level := 40
	for _, l := range []struct {
		slog   slog.Level
		python int
	}{{slog.LevelWarn, 30}, {slog.LevelInfo, 20}, {slog.LevelDebug, 10}, {slog.LevelDebug - 4, 1}} {
		if p.cfg.Log.Enabled(context.Background(), l.slog) {
			level = l.python
		}
	}
	return value.DictOf("loaders", loaders, "level", level, "limit", maxFrame, "path", p.cfg.Path, "stock", p.cfg.Stock)
}

// spawn starts the process and the goroutines that read its output.
func (h *helper) spawn(program, shim string) error {
	var files []*os.File
	closeAll := func() {
		for _, f := range files {
			f.Close()
		}
	}
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			files = append(files, r, w)
		}
		return r, w, err
	}
	requestsR, requestsW, err1 := pipe()
	answersR, answersW, err2 := pipe()
	outR, outW, err3 := pipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		closeAll()
		return fmt.Errorf("cannot make the pipes of the Python helper: %w", err)
	}
	// -u: output appears in the log as soon as it is written. The shim is imported, since Python
	// stores compiled code only for imported modules.
	cmd := exec.Command(program, "-u", "-c", "import sys; sys.path.insert(0, sys.argv[1]); import brine_helper; brine_helper.main()", shim)
	cmd.Stdout, cmd.Stderr = outW, outW
	cmd.ExtraFiles = []*os.File{requestsR, answersW} // descriptors 3 and 4
	cmd.Dir = "/"
	// The helper and the processes started by its modules form one group, so that a kill reaches
	// all of them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := h.pool.enter(h); err != nil {
		closeAll()
		return err
	}
	h.environ = os.Environ()
	cmd.Env = h.environ
	if err := cmd.Start(); err != nil {
		h.pool.leave(h)
		closeAll()
		return fn.Errorf("cannot run Python modules: cannot start %s: %w", program, err)
	}
	for _, f := range []*os.File{requestsR, answersW, outW} {
		f.Close()
	}
	unwanted := h.started(cmd, requestsW)
	go h.read(answersR)
	go h.watchOutput(outR)
	go func() {
		defer h.pool.leave(h)
		_ = cmd.Wait() // its status is in cmd.ProcessState
		close(h.gone)
		h.out.Close()
		// Child processes of modules may have the other ends open.
		_ = answersR.SetReadDeadline(time.Now().Add(farewell))
		_ = outR.SetReadDeadline(time.Now().Add(farewell))
	}()
	if unwanted != nil {
		h.kill(unwanted)
	}
	return nil
}

func (h *helper) ended() bool {
	if gone(h.gone) {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why != nil
}

func gone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// end waits for the end of the process and describes its exit status.
func (h *helper) end() string {
	<-h.gone
	return h.cmd.ProcessState.String()
}

// kill kills the process and all processes that its modules have started.
func (h *helper) kill(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why == nil {
		h.why = why
	}
	if h.pid == 0 {
		return // still starting; see started
	}
	select {
	case <-h.gone:
	default:
		_ = syscall.Kill(-h.pid, syscall.SIGKILL) // the process may have ended meanwhile
	}
	h.out.Close()
}

// started records the process. It returns the reason to kill it at once, or nil.
func (h *helper) started(cmd *exec.Cmd, out *os.File) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cmd, h.pid, h.out = cmd, cmd.Process.Pid, out
	return h.why
}

// retire ends a helper that no call uses. Processes started by its modules continue.
func (h *helper) retire() {
	h.mu.Lock()
	if h.why == nil {
		h.why = errors.New("it was no longer needed")
	}
	h.mu.Unlock()
	h.out.Close()
	time.AfterFunc(farewell, func() {
		select {
		case <-h.gone:
		default:
			_ = h.cmd.Process.Kill()
		}
	})
}

// send writes one message.
func (h *helper) send(items ...any) error {
	frame := make([]byte, 5, 256)
	frame, marked, err := marshal.Append(frame, value.Tuple(items))
	if err != nil {
		return err
	}
	if len(frame) > maxFrame {
		return fn.Errorf("%d bytes are more than the %d that one call of a Python function may hand over", len(frame), maxFrame)
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-5))
	if marked {
		frame[4] = flagMarked
	}
	h.writing.Lock()
	defer h.writing.Unlock()
	_, err = h.out.Write(frame)
	return err
}

// sendEnvironment sends what functions such as environ.setval have changed in the environment of this
// process. In Salt they share it with the modules.
func (h *helper) sendEnvironment() error {
	h.environment.Lock()
	defer h.environment.Unlock()
	now := os.Environ()
	if slices.Equal(now, h.environ) {
		return nil
	}
	changes := value.NewDict(0)
	for _, entry := range h.environ {
		if name, _, ok := strings.Cut(entry, "="); ok {
			if _, kept := os.LookupEnv(name); !kept {
				changes.Set(name, nil)
			}
		}
	}
	for _, entry := range now {
		if name, text, ok := strings.Cut(entry, "="); ok && !slices.Contains(h.environ, entry) {
			changes.Set(name, text)
		}
	}
	h.environ = now
	return h.send("e", changes)
}

// pipeClosed reports whether a write failed because the helper has ended.
func pipeClosed(err error) bool {
	return errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE)
}

// call runs one operation and waits for its result.
func (h *helper) call(ctx context.Context, env *Env, operation string, args []any) (any, int, error) {
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, helperKey{}, use{h.pool, h}))
	defer cancel(errCallEnded)
	done := make(chan answer, 1)
	h.mu.Lock()
	h.last++
	number := h.last
	h.answers[number], h.envs[number] = done, &activity{ctx, env}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.answers, number)
		delete(h.envs, number)
		h.mu.Unlock()
	}()

	err := h.sendEnvironment()
	if err == nil {
		err = h.send(append([]any{"q", number, operation, number, env.vars()}, args...)...)
	}
	if err != nil && !h.ended() && !pipeClosed(err) {
		return nil, 0, err // the arguments cannot be sent
	}
	select {
	case a := <-done:
		return a.value, a.retcode, a.err
	case <-h.gone:
	case <-ctx.Done():
		h.kill(context.Cause(ctx))
	}
	select { // the answer may have arrived just before the end
	case a := <-done:
		return a.value, a.retcode, a.err
	default:
	}
	return nil, 0, h.lost(operation, args)
}

var errCallEnded = errors.New("the call has ended")

// lost returns the error of a call whose helper has ended.
func (h *helper) lost(operation string, args []any) error {
	how := h.end()
	h.mu.Lock()
	why := h.why
	h.mu.Unlock()
	what := operation
	switch {
	case operation == "call" && len(args) > 1:
		what = value.Str(args[1])
	case operation == "engine" && len(args) > 0:
		what = "the engine " + value.Str(args[0])
	}
	if why != nil {
		return fn.Errorf("the Python helper was killed while it ran %s: %w", what, why)
	}
	return fn.Errorf("the Python helper ended while it ran %s: %s", what, how)
}

// read handles messages until the helper ends.
func (h *helper) read(from *os.File) {
	defer from.Close()
	r := bufio.NewReaderSize(from, 1<<16)
	for {
		message, err := readFrame(r)
		if errors.Is(err, errMalformed) {
			h.kill(err)
			return
		}
		if err != nil {
			return
		}
		if err := h.take(message); err != nil {
			h.kill(err)
			return
		}
	}
}

// readFrame reads one message. errMalformed means that no further message can be read either.
func readFrame(r io.Reader) (value.Tuple, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxFrame {
		return nil, fmt.Errorf("%w: it has %d bytes", errMalformed, size)
	}
	// The buffer grows with the received data, not with the size claimed in the header.
	var body strings.Builder
	if _, err := io.CopyN(&body, r, int64(size)); err != nil {
		return nil, err
	}
	v, err := marshal.Unmarshal([]byte(body.String()))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	message, ok := v.(value.Tuple)
	if !ok || len(message) < 4 {
		return nil, fmt.Errorf("%w: it is no tuple of a message", errMalformed)
	}
	return message, nil
}

// take handles one message.
func (h *helper) take(m value.Tuple) error {
	kind, _ := m[0].(string)
	if kind == "l" {
		h.logRecord(m)
		return nil
	}
	number, ok := m[1].(int64)
	if !ok {
		return errMalformed
	}
	if kind == "p" {
		return h.print(number, m[2:])
	}
	switch {
	case kind == "r" && len(m) == 5:
		a := answer{value: m[3]}
		if code, ok := m[4].(int64); ok {
			a.retcode = int(int32(code))
		}
		if m[2] != true {
			a = answer{err: h.raised(m[3])}
		}
		h.mu.Lock()
		done := h.answers[number]
		delete(h.answers, number)
		h.mu.Unlock()
		if done != nil {
			done <- a
		}
		return nil
	case kind == "q":
		name, ok := m[2].(string)
		env, okEnv := m[3].(int64)
		if !ok || !okEnv {
			return errMalformed
		}
		h.mu.Lock()
		a := h.envs[env]
		h.serving++
		many := h.serving > maxServing
		h.mu.Unlock()
		if many {
			return errFlood
		}
		go h.serve(a, number, name, m[4:])
		return nil
	}
	return errMalformed
}

// print passes on what the function of a call prints.
func (h *helper) print(env int64, m value.Tuple) error {
	stream, ok := m[0].(string)
	text, okText := m[1].(string)
	if !ok || !okText {
		return errMalformed
	}
	h.mu.Lock()
	a := h.envs[env]
	h.mu.Unlock()
	if a != nil && a.env.Call.Print != nil {
		a.env.Call.Print(stream, text)
	}
	return nil
}

// serve answers one request of Python.
func (h *helper) serve(a *activity, number int64, name string, args []any) {
	defer func() {
		h.mu.Lock()
		h.serving--
		h.mu.Unlock()
	}()
	v, err := any(nil), errCallEnded
	if a != nil {
		v, err = a.env.request(a.ctx, h.pool, name, args)
	}
	if e := h.sendEnvironment(); e != nil && err == nil {
		err = e
	}
	if err == nil {
		err = h.send("r", number, true, v)
		if err == nil || h.ended() {
			return
		}
	}
	if e := h.send("r", number, false, h.described(err)); e != nil && !h.ended() {
		h.kill(fmt.Errorf("cannot answer it: %w", e))
	}
}

// levels maps Python's log levels to those of slog, highest first.
var levels = []struct {
	python int64
	slog   slog.Level
}{{40, slog.LevelError}, {30, slog.LevelWarn}, {20, slog.LevelInfo}, {10, slog.LevelDebug}}

// logRecord logs a record of a module.
func (h *helper) logRecord(m value.Tuple) {
	n, _ := m[1].(int64)
	level := slog.LevelDebug - 4
	for _, l := range levels {
		if n >= l.python {
			level = l.slog
			break
		}
	}
	h.log.Log(context.Background(), level, "python: "+shorten(value.Str(m[3])), "logger", shorten(value.Str(m[2])))
}

const (
	maxLine   = 4 << 10 // maximum bytes logged of a line of output or of a log record
	lastLines = 5       // lines quoted in an error
	maxOutput = 1 << 20 // maximum bytes of output logged per helper and hour
	// outputEvery is the time after which more output is logged.
	outputEvery = time.Hour
)

func shorten(s string) string {
	if len(s) > maxLine {
		return s[:maxLine] + "..."
	}
	return s
}

// tail returns the last lines printed by an ended helper.
func (h *helper) tail() string {
	<-h.silent
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.printed, "\n")
}

// watchOutput logs what modules print, up to a limit, and discards the rest.
func (h *helper) watchOutput(from *os.File) {
	defer from.Close()
	defer close(h.silent)
	r := bufio.NewReaderSize(from, maxLine)
	logged, since := 0, time.Now()
	for {
		line, more, err := r.ReadLine()
		if err != nil {
			return
		}
		h.mu.Lock()
		h.printed = append(h.printed[max(0, len(h.printed)-lastLines+1):], string(line))
		h.mu.Unlock()
		if time.Since(since) > outputEvery {
			logged, since = 0, time.Now()
		}
		if logged > maxOutput || len(line) == 0 {
			continue
		}
		if logged += len(line); logged > maxOutput {
			h.log.Warn("a Python helper prints too much; the rest of the hour is dropped", "pid", h.pid, "bytes", maxOutput)
			continue
		}
		h.log.Info("output of a Python module", "pid", h.pid, "line", string(line), "cut", more)
	}
}
