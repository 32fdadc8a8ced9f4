package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"brine/internal/base/atomicfile"
	pyjson "brine/internal/py/json"
	"brine/internal/py/value"
)

// approvalFiles keeps the jobs that wait for approval, so that they survive a restart. A file has no token: it names
// the session whose user asked. A nil *approvalFiles keeps nothing.
type approvalFiles struct {
	dir      string
	sessions *sessions
}

// maxApprovalFile bounds the file of a job in bytes.
const maxApprovalFile = 1 << 20

// approvalFile is the content of a file. A job that was being started when this server ended has failed.
type approvalFile struct {
	User    string          `json:"user"`
	From    string          `json:"from"`
	Reason  string          `json:"reason"`
	Asked   int64           `json:"asked"` // milliseconds since 1970
	Chunk   json.RawMessage `json:"chunk"`
	Session string          `json:"session"` // name of its file
	State   string          `json:"state"`
	By      string          `json:"by,omitempty"`
}

func openApprovalFiles(sessions *sessions) (*approvalFiles, error) {
	f := &approvalFiles{dir: filepath.Join(filepath.Dir(sessions.dir), "approvals"), sessions: sessions}
	if err := atomicfile.MkdirAll(f.dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the directory of jobs that wait for approval: %w", err)
	}
	return f, nil
}

func (f *approvalFiles) path(id string) string { return filepath.Join(f.dir, id) }

// save stores the present state of a job. The file of one that neither waits nor is being started is removed.
func (f *approvalFiles) save(p *approval) error {
	if f == nil {
		return nil
	}
	if p.state != waiting && p.state != starting {
		if err := os.Remove(f.path(p.id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove a job that no longer waits for approval: %w", err)
		}
		return nil
	}
	chunk := p.chunk.Clone()
	for _, k := range []string{"token", "eauth", "username", "password"} {
		chunk.Delete(k)
	}
	text, err := pyjson.Dump(chunk, pyjson.Format{ASCII: true})
	if err != nil {
		return fmt.Errorf("cannot store a job that waits for approval: %w", err)
	}
	b, err := json.Marshal(approvalFile{p.user, p.from, p.why, p.asked.UnixMilli(), json.RawMessage(text), p.session, p.state, p.by})
	if err == nil && len(b) > maxApprovalFile {
		err = fmt.Errorf("it has more than %d bytes", maxApprovalFile)
	}
	if err == nil {
		err = atomicfile.Write(f.path(p.id), b, 0o600, true)
	}
	if err != nil {
		return fmt.Errorf("cannot store a job that waits for approval: %w", err)
	}
	return nil
}

// load reads the jobs of before the last restart, the oldest first. Damaged files are removed. The error joins what
// failed for single files; the list has the other jobs.
func (f *approvalFiles) load() (list []*approval, err error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the jobs that wait for approval: %w", err)
	}
	var failed []error
	for _, e := range entries {
		p, err := f.read(e.Name())
		if err != nil { // the next restart may be able to read it
			failed = append(failed, fmt.Errorf("cannot read a job that waits for approval: %w", err))
			continue
		}
		if p == nil || len(list) >= maxApprovals {
			if err := os.Remove(f.path(e.Name())); err != nil {
				failed = append(failed, fmt.Errorf("cannot remove a damaged job that waits for approval: %w", err))
			}
			continue
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *approval) int { return cmp.Or(a.asked.Compare(b.asked), cmp.Compare(a.id, b.id)) })
	return list, errors.Join(failed...)
}

// read reads a file, nil if it is damaged.
func (f *approvalFiles) read(id string) (*approval, error) {
	info, err := os.Lstat(f.path(id))
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxApprovalFile || len(id) != 40 {
		return nil, nil
	}
	b, err := os.ReadFile(f.path(id))
	if err != nil {
		return nil, err
	}
	var in approvalFile
	if json.Unmarshal(b, &in) != nil {
		return nil, nil
	}
	v, err := pyjson.Load(string(in.Chunk))
	chunk, ok := v.(*value.Dict)
	if err != nil || !ok {
		return nil, nil
	}
	p := &approval{id: id, user: in.User, from: in.From, why: in.Reason, chunk: chunk, asked: time.UnixMilli(in.Asked), session: in.Session, state: waiting}
	of := f.sessions.read(filepath.Base(in.Session))
	switch {
	case in.State == starting:
		p.state, p.by, p.problem = failed, in.By, "salt-api ended while it started the job: salt-run jobs.list_jobs shows whether it runs"
	case of == nil || of.User != p.user || !of.goodAt(f.sessions.now()) || f.sessions.isIdle(of, f.sessions.now()):
		p.state, p.problem = failed, sessionEnded(p.user)
	default:
		p.chunk.Set("token", of.Token)
	}
	return p, nil
}

func sessionEnded(user string) string { return "the session of " + user + " has ended" }

// keep stores the state of a job. The lock is held.
func (a *approvals) keep(p *approval) {
	if err := a.files.save(p); err != nil {
		a.log.Warn("a job that waits for approval would not survive a restart as it is", "id", p.id, "err", err)
	}
}

// restore reads the jobs that waited before this server was restarted, and asks the master for decisions on them.
func (a *approvals) restore(s *Settings, files *approvalFiles) {
	list, err := files.load()
	if err != nil {
		a.log.Warn("cannot restore all jobs that waited for approval", "err", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.files, a.list = files, list
	a.clean()
	for _, p := range a.list {
		if p.state != waiting {
			a.keep(p)
			continue
		}
		if !a.watching {
			a.watching = true
			r := &http.Request{Header: http.Header{}, RemoteAddr: p.from}
			go a.watch(context.Background(), &call{s: s, log: a.log, r: r, of: &session{User: p.user, Token: p.chunk.Str("token")}})
		}
	}
}
