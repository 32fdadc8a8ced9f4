package audit

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	pyjson "brine/internal/py/json"
	"brine/internal/py/value"
)

// Each record has a number (seq) and a hash, at its end. The hash is an HMAC of the hash before it and of the text of the record without its own hash:
//
//	{"time": …, "user": …, "seq": 7, "hash": "0123456789abcdef0123456789abcdef"}
//
// Where the chain begins, goes on in a new file, or went on after something had happened to it, there is a mark: a record with the key "chain" instead
// of a user. It has the hash before it as prev, so that a file can be checked without the one before it, and the id of the key.

const (
	keySeq, keyHash, keyMark = "seq", "hash", "chain"
	// hashSize is the number of bytes of a hash: 128 bits are enough for an HMAC.
	hashSize = 16
	// beforeSeq, beforeHash and afterHash surround both in the text of a record, beforeMark begins what only marks have: quotes in strings are escaped.
	beforeSeq, beforeHash, afterHash, beforeMark = `, "` + keySeq + `": `, `, "` + keyHash + `": "`, `"}`, `, "` + keyMark + `": "`
)

// Reasons of a mark.
const (
	markBegins = "begins"
	markFile   = "new file"
	markGoesOn = "goes on"
)

// link is the hash of a record.
type link [hashSize]byte

func (l link) String() string { return hex.EncodeToString(l[:]) }

func parseLink(s string) (l link, ok bool) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != hashSize {
		return l, false
	}
	return link(b), true
}

// keyUse separates these hashes from other uses of the same secret.
const keyUse = "brine: records of the audit log"

// sealer computes hashes. It is not safe for concurrent use.
type sealer struct {
	key []byte
	mac hash.Hash
	sum []byte
	id  string // of the key
}

// newSealer returns the hashes that need a secret.
func newSealer(secret []byte) *sealer {
	derived := hmac.New(sha256.New, secret)
	derived.Write([]byte(keyUse))
	s := (&sealer{key: derived.Sum(nil)}).again()
	s.id = s.of(link{}, []byte("id")).String()[:8]
	return s
}

// again returns hashes with the same key for another goroutine.
func (s *sealer) again() *sealer {
	return &sealer{key: s.key, id: s.id, mac: s.fresh(), sum: make([]byte, 0, sha256.Size)}
}

// fresh returns an empty hash with the key.
func (s *sealer) fresh() hash.Hash { return hmac.New(sha256.New, s.key) }

// of returns the hash of a record: of its text before its hash.
func (s *sealer) of(prev link, text []byte) link {
	s.mac.Reset()
	s.mac.Write(prev[:])
	s.mac.Write(text)
	s.sum = s.mac.Sum(s.sum[:0])
	return link(s.sum[:hashSize])
}

// ofFile returns the hash of what a reader has.
func (s *sealer) ofFile(r io.Reader) (link, error) {
	mac := s.fresh()
	_, err := io.Copy(mac, r)
	return link(mac.Sum(nil)[:hashSize]), err
}

// sealed is the end of a line of a file.
type sealed struct {
	text []byte // before the hash
	seq  int64
	hash link
	mark bool
}

// parse returns the number and hash of a line without its newline.
func parse(line []byte) (x sealed, ok bool) {
	rest, ok := bytes.CutSuffix(line, []byte(afterHash))
	if !ok || len(rest) < 2*hashSize+len(beforeHash) || line[0] != '{' {
		return x, false
	}
	at := len(rest) - 2*hashSize
	if x.hash, ok = parseLink(string(rest[at:])); !ok || strings.ToLower(string(rest[at:])) != string(rest[at:]) {
		return x, false
	}
	if x.text, ok = bytes.CutSuffix(rest[:at], []byte(beforeHash)); !ok {
		return x, false
	}
	i := bytes.LastIndex(x.text, []byte(beforeSeq))
	if i < 0 {
		return x, false
	}
	digits := string(x.text[i+len(beforeSeq):])
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || strconv.FormatInt(n, 10) != digits {
		return x, false
	}
	x.seq, x.mark = n, bytes.Contains(x.text, []byte(beforeMark))
	return x, true
}

// mark is what the text of a mark says.
type mark struct {
	Time   string `json:"time"`
	Chain  string `json:"chain"`
	Key    string `json:"key"`
	Prev   string `json:"prev"`
	Oldest int64  `json:"oldest"` // number of the first record of the file before this one
	// Unhashed and Sum are the size in bytes and the hash of what the file had before: records without hashes.
	Unhashed int64  `json:"unhashed"`
	Sum      string `json:"sum"`
	Torn     int64  `json:"torn"`    // bytes of a line before the mark whose end is missing
	Lost     int64  `json:"lost"`    // records that could not be written
	Missing  int64  `json:"missing"` // records before the mark that had been written, and were not in the file any more
	Crash    bool   `json:"crash"`   // the master had ended without closing the file
	Head     string `json:"head"`    // what was wrong with the file that has the number of the last record
}

// dict returns the record.
func (m *mark) dict() *value.Dict {
	d := value.DictOf("time", m.Time, keyMark, m.Chain, "key", m.Key, "prev", m.Prev)
	for _, n := range []struct {
		name string
		n    int64
	}{{"oldest", m.Oldest}, {"unhashed", m.Unhashed}, {"torn", m.Torn}, {"lost", m.Lost}, {"missing", m.Missing}} {
		if n.n != 0 {
			d.Set(n.name, n.n)
		}
	}
	if m.Sum != "" {
		d.Set("sum", m.Sum)
	}
	if m.Crash {
		d.Set("crash", true)
	}
	if m.Head != "" {
		d.Set("head", m.Head)
	}
	return d
}

// head is the file with the number and hash of the last record: without it records could be cut off the end while the master does not run. It is
// written when the log is opened and closed, and each minute.
type head struct {
	Seq    int64  `json:"seq"`
	Hash   string `json:"hash"`
	Key    string `json:"key"`
	Closed bool   `json:"closed"` // nothing was written since
	Proof  string `json:"proof"`
}

// proof returns the hash of the rest.
func (s *sealer) proof(h head) string {
	return s.of(link{}, fmt.Appendf(nil, "head %d %s %s %v", h.Seq, h.Hash, h.Key, h.Closed)).String()
}

// maxHead bounds the file.
const maxHead = 4 << 10

// What is wrong with a head.
const (
	headMissing  = "missing"
	headDamaged  = "damaged"
	headOtherKey = "of another key"
)

// readHead returns the head of a log, or what is wrong with it.
func (s *sealer) readHead(path string) (h head, problem string, err error) {
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return head{}, headMissing, nil
	}
	if err == nil && (!fi.Mode().IsRegular() || fi.Size() > maxHead) {
		return head{}, headDamaged, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return head{}, "", err
	}
	switch {
	case json.Unmarshal(b, &h) != nil:
		return head{}, headDamaged, nil
	case h.Key != s.id:
		return head{}, headOtherKey, nil
	case !hmac.Equal([]byte(s.proof(h)), []byte(h.Proof)):
		return head{}, headDamaged, nil
	}
	return h, "", nil
}

// headText returns the content of the file of a head.
func (s *sealer) headText(h head) ([]byte, error) {
	h.Key = s.id
	h.Proof = s.proof(h)
	b, err := json.Marshal(h)
	return append(b, '\n'), err
}

// appendRecord appends the text of a record without its end. Texts are the same as those of pyjson.Dump.
func appendRecord(b []byte, d *value.Dict) ([]byte, error) {
	b = append(b, '{')
	n := 0
	for k, v := range d.All() {
		if n++; n > 1 {
			b = append(b, ", "...)
		}
		name, ok := k.(string)
		if !ok {
			return b, fmt.Errorf("a key of an audit record is no string: %v", k)
		}
		b = append(pyjson.AppendText(b, name, true), ": "...)
		switch x := v.(type) {
		case string:
			b = pyjson.AppendText(b, x, true)
		default:
			text, err := pyjson.Dump(v, pyjson.Format{ASCII: true})
			if err != nil {
				return b, err
			}
			b = append(b, text...)
		}
	}
	return b, nil
}

// endSize is the most that appendEnd appends.
const endSize = len(beforeSeq) + 20 + len(beforeHash) + 2*hashSize + len(afterHash) + 1

// appendEnd appends the number and the hash of a record, the end of its line.
func (s *sealer) appendEnd(b []byte, prev link, seq int64) ([]byte, link) {
	b = append(b, beforeSeq...)
	b = strconv.AppendInt(b, seq, 10)
	l := s.of(prev, b)
	b = append(b, beforeHash...)
	b = hex.AppendEncode(b, l[:])
	return append(b, afterHash+"\n"...), l
}

// readMark reads the line of a mark.
func readMark(line []byte) (m mark, ok bool) {
	err := json.Unmarshal(line, &m)
	return m, err == nil
}

// lines reads lines of any length. Those longer than maxLine are empty.
type lines struct {
	r      *bufio.Reader
	length int64 // of the last line in bytes, without its newline
	buf    []byte
}

// maxLine is more than any record has.
const maxLine = 1 << 20

func newLines(r io.Reader) *lines { return &lines{r: bufio.NewReaderSize(r, 64<<10)} }

// next returns the next line without its newline, and whether it has one.
func (l *lines) next() (line []byte, whole bool, err error) {
	l.length, l.buf = 0, l.buf[:0]
	for {
		some, err := l.r.ReadSlice('\n')
		l.length += int64(len(some))
		if l.length <= maxLine {
			l.buf = append(l.buf, some...)
		} else {
			l.buf = l.buf[:0]
		}
		switch {
		case err == nil:
			l.length--
			return bytes.TrimSuffix(l.buf, []byte("\n")), true, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && l.length > 0:
			return l.buf, false, nil
		default:
			return nil, false, err
		}
	}
}
