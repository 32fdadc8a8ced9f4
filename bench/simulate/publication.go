package simulate

import (
	"bytes"
	"errors"

	"brine/internal/base/target"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Publication is a job as received by minions.
type Publication struct {
	JID, Fun string

	payload []byte
	match   target.Matcher
}

// For reports whether the job is for a minion.
func (p *Publication) For(id string) bool {
	return p.match.Match(target.Data{MinionID: id})
}

var errForeign = errors.New("a publication that is no job of this master")

// openPublication decodes a publication, unless another minion has just decoded it.
func (f *Fleet) openPublication(payload []byte) (*Publication, error) {
	if p := f.last.Load(); p != nil && bytes.Equal(p.payload, payload) {
		return p, nil
	}
	f.open.Lock()
	defer f.open.Unlock()
	if p := f.last.Load(); p != nil && bytes.Equal(p.payload, payload) {
		return p, nil
	}
	raw, ok, err := msgpack.Field(payload, "load")
	key := f.aes.Load()
	if err != nil || !ok || key == nil {
		return nil, errForeign
	}
	sealed, _ := msgpack.Text(raw)
	plain, err := key.cipher.Open(sealed)
	if err != nil {
		return nil, err
	}
	v, err := msgpack.Unmarshal(plain)
	if err != nil {
		return nil, err
	}
	job, ok := v.(*value.Dict)
	if !ok {
		return nil, errForeign
	}
	p := &Publication{JID: job.Str("jid"), Fun: job.Str("fun"), payload: payload}
	typ := job.Str("tgt_type")
	if typ == "" {
		typ = "glob"
	}
	if p.match, err = target.Parse(typ, job.At("tgt"), ""); err != nil {
		return nil, err
	}
	f.last.Store(p)
	return p, nil
}
