package audit

import (
	"bytes"
	"crypto/hmac"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"brine/internal/py/value"
)

// Place is a record in a log, and its time.
type Place struct {
	Seq  int64
	Time string
}

// Range is an unbroken part of a chain.
type Range struct {
	From, To Place
	Records  int64
}

// Finding is something that happened to a chain after a record; Seq 0 is before all records.
type Finding struct {
	After Place
	What  string
}

// Report says from where to where a chain is whole.
type Report struct {
	Records  int64 // that belong to the chain
	Unhashed int64 // from before there were hashes
	// Copies is the number of copies elsewhere that were compared. Lacking is how many records are in the files that have no copy.
	Copies, Lacking int64
	Ranges          []Range
	// Breaks are what only a change of the files explains. Notes are what happens: a crash, a full disk, another key.
	Breaks, Notes []Finding
	// Left counts findings beyond maxFindings.
	Left int64
}

// maxFindings bounds the breaks and the notes of a report.
const maxFindings = 100

// Whole reports whether nothing was changed, as far as the hashes tell.
func (r *Report) Whole() bool { return len(r.Breaks) == 0 }

// Dict returns the report for an answer.
func (r *Report) Dict() *value.Dict {
	place := func(p Place) *value.Dict { return value.DictOf("seq", p.Seq, "time", p.Time) }
	findings := func(all []Finding) *value.List {
		out := &value.List{}
		for _, f := range all {
			out.Append(value.DictOf("after", place(f.After), "what", f.What))
		}
		return out
	}
	ranges := &value.List{}
	for _, x := range r.Ranges {
		ranges.Append(value.DictOf("from", place(x.From), "to", place(x.To), "records", x.Records))
	}
	d := value.DictOf("whole", r.Whole(), "records", r.Records, "ranges", ranges, "breaks", findings(r.Breaks), "notes", findings(r.Notes))
	if r.Unhashed > 0 {
		d.Set("unhashed", r.Unhashed)
	}
	if r.Copies > 0 || r.Lacking > 0 {
		d.Set("copies", r.Copies)
		d.Set("lacking", r.Lacking)
	}
	if r.Left > 0 {
		d.Set("left_out", r.Left)
	}
	return d
}

// With returns a copy of a report with one more note.
func (r *Report) With(note string, args ...any) *Report {
	out := *r
	out.Notes = slices.Clone(r.Notes)
	out.add(&out.Notes, Place{}, note, args...)
	return &out
}

func (r *Report) add(list *[]Finding, after Place, what string, args ...any) {
	if len(*list) >= maxFindings {
		r.Left++
		return
	}
	*list = append(*list, Finding{after, fmt.Sprintf(what, args...)})
}

// verifier follows a chain through the files.
type verifier struct {
	seal *sealer
	rep  *Report

	started bool  // there was a record with a hash
	prev    link  // the hash of the last record that belongs to the chain
	last    Place // that record
	split   bool  // the next one begins a range

	// Lines whose hash is wrong, since the last record that belongs to the chain.
	bad               int64
	badFirst, badLast sealed
	odd, oddLines     int64 // bytes and lines without a hash since
	foreign           bool  // the last mark has another key
	foreignOf         int64 // number of the first of these records

	// Of this file:
	begun      bool  // it had a record with a hash
	plain      int64 // lines before the first one
	plainBytes int64
	plainSum   hash.Hash
	inFile     int

	first  [2]int64 // number of the first record of each file
	hashes map[int64]link
	crash  []int64        // numbers of marks after crashes
	marks  map[int64]bool // numbers of marks
}

// begin begins a file: 0 is the older one.
func (v *verifier) begin(file int) {
	v.inFile, v.begun, v.plain, v.plainBytes, v.plainSum = file, false, 0, 0, nil
}

func (v *verifier) breaks(what string, args ...any) {
	v.rep.add(&v.rep.Breaks, v.last, what, args...)
	v.split = true
}

func (v *verifier) note(what string, args ...any) {
	v.rep.add(&v.rep.Notes, v.last, what, args...)
}

// timeOf returns the time of a record.
func timeOf(line []byte) string {
	const begin = `{"time": "`
	rest, ok := bytes.CutPrefix(line, []byte(begin))
	i := bytes.IndexByte(rest, '"')
	if !ok || i < 0 || i > 40 {
		return ""
	}
	return string(rest[:i])
}

// numbered says something of records with these numbers.
func numbered(from, to int64, one, many string) string {
	if from == to {
		return fmt.Sprintf("record %d %s", from, one)
	}
	return fmt.Sprintf("records %d to %d %s", from, to, many)
}

func missing(from, to int64) string { return numbered(from, to, "is missing", "are missing") }

// number returns a number of things in words.
func number(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// line takes the next line. length is that of a line that is too long to be read.
func (v *verifier) line(line []byte, length int64, whole bool) {
	x, ok := sealed{}, false
	if whole {
		x, ok = parse(line)
	}
	if !ok {
		v.without(line, length)
		return
	}
	var m mark
	if x.mark {
		if m, ok = readMark(line); !ok {
			v.without(line, length)
			return
		}
	}
	if !v.begun {
		v.begun = true
		v.first[v.inFile] = x.seq
		v.before(x, &m)
	}
	here := Place{x.seq, timeOf(line)}
	mPrev, hasPrev := parseLink(m.Prev)
	switch {
	case x.mark && m.Key != v.seal.id:
		v.otherKey(x, here)
	case v.foreign && !x.mark:
		if x.seq != v.last.Seq+1 {
			v.breaks("%s", missing(v.last.Seq+1, x.seq-1))
		}
		v.prev, v.last = x.hash, here
	case v.started && v.is(v.prev, x):
		if v.bad > 0 {
			v.breaks("%s inserted", were(v.bad, "line"))
		}
		v.good(x, here, &m)
	case v.bad > 0 && v.is(v.badLast.hash, x):
		v.breaks("%s", v.changed(x.seq))
		v.good(x, here, &m)
	case x.mark && hasPrev && v.is(mPrev, x):
		v.goesOn(x, &m)
		v.good(x, here, &m)
	default:
		if v.bad++; v.bad == 1 {
			v.badFirst = sealed{seq: x.seq}
		}
		v.badLast = sealed{seq: x.seq, hash: x.hash}
	}
}

func were(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing + " was"
	}
	return fmt.Sprintf("%d %ss were", n, thing)
}

func (v *verifier) is(prev link, x sealed) bool {
	want := v.seal.of(prev, x.text)
	return hmac.Equal(want[:], x.hash[:])
}

// without takes a line without a hash.
func (v *verifier) without(line []byte, length int64) {
	if !v.begun {
		if v.plain == 0 {
			v.plainSum = v.seal.fresh()
		}
		v.plain++
		v.plainBytes += length + 1
		v.plainSum.Write(line)
		v.plainSum.Write([]byte("\n"))
		return
	}
	v.odd += length
	v.oddLines++
}

// before judges the lines before the first one with a hash of a file.
func (v *verifier) before(x sealed, m *mark) {
	if v.plain == 0 {
		if !x.mark || m.Unhashed > 0 {
			v.breaks("the beginning of a file is missing or was changed")
		}
		return
	}
	if v.plainBytes != m.Unhashed || link(v.plainSum.Sum(nil)[:hashSize]).String() != m.Sum {
		v.breaks("lines without hashes at the beginning of a file were changed, inserted or removed")
	}
	v.rep.Unhashed += v.plain
}

// changed says what happened to the lines whose hash is wrong before a record that belongs to the chain again.
func (v *verifier) changed(next int64) string {
	first, last := v.badFirst.seq, v.badLast.seq
	switch {
	case !v.started:
		return fmt.Sprintf("what was before record %d is missing or was changed", next)
	case first > v.last.Seq+1:
		return missing(v.last.Seq+1, first-1) + ": removed, or changed with what follows"
	case first == v.last.Seq+1 && last-first+1 == v.bad && last+1 == next:
		return numbered(first, last, "was changed", "were changed")
	}
	return fmt.Sprintf("%s changed, inserted or moved", were(v.bad, "line"))
}

// otherKey takes a mark of another key.
func (v *verifier) otherKey(x sealed, here Place) {
	if v.started && !v.foreign {
		v.breaks("what follows has another key, and cannot be checked")
	}
	if !v.foreign {
		v.foreign, v.foreignOf = true, x.seq
	}
	v.started, v.prev, v.last, v.bad = true, x.hash, here, 0
}

// goesOn takes a mark that belongs to the chain, but does not follow the record before it.
func (v *verifier) goesOn(x sealed, m *mark) {
	switch {
	case !v.started && v.bad == 0: // the oldest file that is kept
	case !v.started:
		v.breaks("%s", v.changed(x.seq))
	case v.bad > 0:
		v.breaks("%s; the chain goes on with record %d", v.changed(x.seq), x.seq)
	case v.last.Seq+1 < x.seq-m.Missing:
		v.breaks("%s", missing(v.last.Seq+1, x.seq-m.Missing-1))
	default:
		v.breaks("the chain does not go on with record %d: records were removed, or replaced by older ones", x.seq)
	}
}

// good takes a record that belongs to the chain.
func (v *verifier) good(x sealed, here Place, m *mark) {
	if v.foreign {
		v.note("%s made with another key: not checked", numbered(v.foreignOf, v.last.Seq, "was", "were"))
		v.foreign, v.split = false, true
	}
	if x.mark {
		v.marked(x, m)
	} else {
		v.oddLine()
	}
	v.odd, v.oddLines, v.bad, v.started = 0, 0, 0, true
	v.prev, v.last = x.hash, here
	v.rep.Records++
	n := len(v.rep.Ranges)
	if n == 0 || v.split && n <= maxFindings {
		v.rep.Ranges = append(v.rep.Ranges, Range{From: here})
		n++
	}
	v.split = false
	v.rep.Ranges[n-1].To = here
	v.rep.Ranges[n-1].Records++
	if v.hashes != nil {
		v.hashes[x.seq] = x.hash
	}
}

func (v *verifier) oddLine() {
	if v.oddLines > 0 {
		v.breaks("%s without a hash, which another program or an older version wrote, or which was changed", number(v.oddLines, "line"))
	}
}

// marked reports what a mark says.
func (v *verifier) marked(x sealed, m *mark) {
	v.marks[x.seq] = true
	switch {
	case v.odd != m.Torn:
		v.oddLine()
	case m.Torn > 0:
		v.note("the end of a record is missing: a crash or a full disk cut it off")
	}
	if m.Lost > 0 {
		v.note("%s could not be written (a full disk?): the master's log has them", number(m.Lost, "record"))
	}
	if m.Missing > 0 {
		v.breaks("%s, found at %s: removed, or the file is from a backup", missing(x.seq-m.Missing, x.seq-1), m.Time)
	}
	if m.Crash {
		v.crash = append(v.crash, x.seq)
		v.note("the master had not closed the file: a crash may have lost the newest records")
	}
	if m.Head != "" {
		v.breaks("the file with the number of the last record was %s at %s: records may have been removed here", m.Head, m.Time)
	}
	if v.inFile == 1 && m.Oldest > 0 && v.first[1] == x.seq && v.first[0] != m.Oldest {
		switch {
		case v.first[0] == 0:
			v.breaks("%s: the file before this one was removed", missing(m.Oldest, x.seq-m.Missing-1))
		case v.first[0] > m.Oldest:
			v.rep.add(&v.rep.Breaks, Place{}, "%s at the beginning", missing(m.Oldest, v.first[0]-1))
		}
	}
}

// end takes the end of the files, which the log says is record seq. part is the size of a part of a line that is known to be there.
func (v *verifier) end(seq int64, hash link, part int64) {
	if !v.begun && v.plain > 0 {
		v.rep.Unhashed += v.plain
		if v.started {
			v.breaks("%s without a hash in place of those with one", number(v.plain, "line"))
		}
	}
	changed := v.bad > 0 && v.badFirst.seq == v.last.Seq+1 && v.badLast.seq == seq && seq-v.last.Seq == v.bad
	switch {
	case changed:
		v.breaks("%s at the end", numbered(v.badFirst.seq, seq, "was changed or inserted", "were changed or inserted"))
	case v.bad > 0:
		v.breaks("%s changed or inserted at the end", were(v.bad, "line"))
	}
	switch {
	case v.odd > 0 && v.odd == part:
		v.note("the end of a record is missing: a full disk cut it off")
	default:
		v.oddLine()
	}
	switch {
	case v.foreign:
		v.breaks("%s made with another key, at the end", numbered(v.foreignOf, v.last.Seq, "was", "were"))
	case changed:
	case v.last.Seq < seq:
		v.breaks("%s at the end", missing(v.last.Seq+1, seq))
	case seq > 0 && v.prev != hash && v.bad == 0:
		v.breaks("the last record is not the one that this master wrote last")
	}
}

// checks has the last report, so that several consoles cost no more than one.
type checks struct {
	checking sync.Mutex
	checked  time.Time
	report   *Report
}

// reportAge is how long a report is used again.
const reportAge = 2 * time.Second

// Verify checks the chain in the files.
func (l *Log) Verify() (*Report, error) {
	l.checking.Lock()
	defer l.checking.Unlock()
	if l.report == nil || time.Since(l.checked) >= reportAge {
		v, err := l.verify(nil)
		if err != nil {
			return nil, err
		}
		l.report, l.checked = v.rep, time.Now()
	}
	return l.report, nil
}

// VerifyWith checks the chain in the files, and the copies of its records elsewhere: their JSON.
func (l *Log) VerifyWith(copies []string) (*Report, error) {
	l.checking.Lock()
	defer l.checking.Unlock()
	v, err := l.verify(map[int64]link{})
	if err != nil {
		return nil, err
	}
	v.copies(copies)
	return v.rep, nil
}

// verify follows the chain. It adds the hashes of records by their number to hashes, unless that is nil.
func (l *Log) verify(hashes map[int64]link) (*verifier, error) {
	l.mu.Lock()
	v := &verifier{seal: l.seal.again(), rep: &Report{}, hashes: hashes, marks: map[int64]bool{}}
	seq, last, part := l.seq, l.last, l.part
	files, err := openFiles(l.oldPath(), l.path)
	l.mu.Unlock()
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("cannot read the audit log: %w", err)
	}
	for i, f := range files {
		if f.File == nil {
			continue
		}
		v.begin(i)
		lines := newLines(io.LimitReader(f, f.size))
		for {
			line, whole, err := lines.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("cannot read the audit log: %w", err)
			}
			v.line(line, lines.length, whole)
		}
		if i == 0 && !v.begun {
			v.rep.Unhashed += v.plain
			v.plain = 0
		}
	}
	v.end(seq, last, part)
	return v, nil
}

type sizedFile struct {
	*os.File
	size int64
}

// openFiles opens the files that exist.
func openFiles(paths ...string) (out []sizedFile, err error) {
	for _, path := range paths {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			out = append(out, sizedFile{})
			continue
		}
		if err != nil {
			return out, err
		}
		out = append(out, sizedFile{File: f})
		fi, err := f.Stat()
		if err != nil {
			return out, err
		}
		if fi.Mode().IsRegular() {
			out[len(out)-1].size = fi.Size()
		}
	}
	return out, nil
}

// copyOf is a copy of a record.
type copyOf struct {
	sealed
	time string
}

// copies compares copies of records with the files.
func (v *verifier) copies(texts []string) {
	bySeq := map[int64][]copyOf{}
	for _, text := range texts {
		v.rep.Copies++
		if x, ok := parse([]byte(text)); ok && !slices.ContainsFunc(bySeq[x.seq], func(c copyOf) bool { return c.hash == x.hash && bytes.Equal(c.text, x.text) }) {
			bySeq[x.seq] = append(bySeq[x.seq], copyOf{x, timeOf([]byte(text))})
		}
	}
	numbers := slices.Sorted(maps.Keys(bySeq))
	var elsewhere []copyOf // that the chain has, and not the files
	for _, n := range numbers {
		for _, c := range bySeq[n] {
			own, here := v.hashes[n]
			authentic, known := v.authentic(c, bySeq[n-1])
			switch {
			case known && !authentic && own != c.hash && v.followed(c, bySeq[n+1]): // of a chain that the files do not have
				elsewhere = append(elsewhere, c)
			case known && !authentic, !known && here && own != c.hash:
				v.rep.add(&v.rep.Breaks, Place{c.seq, c.time}, "the copy of record %d in the console_store was changed or inserted", n)
			case here && own != c.hash, known && !here && n > v.last.Seq:
				elsewhere = append(elsewhere, c)
			}
		}
	}
	if len(elsewhere) > 0 {
		first, last := elsewhere[0], elsewhere[len(elsewhere)-1]
		list := &v.rep.Breaks
		if slices.Contains(v.crash, first.seq) {
			list = &v.rep.Notes
		}
		v.rep.add(list, Place{first.seq, first.time}, "%s with the numbers %d to %d in the console_store are not in the files",
			number(int64(len(elsewhere)), "record"), first.seq, last.seq)
	}
	if len(numbers) == 0 {
		return
	}
	for n := range v.hashes {
		if n > numbers[0] && bySeq[n] == nil && !v.marks[n] {
			v.rep.Lacking++
		}
	}
}

// followed reports whether another copy follows a copy in a chain.
func (v *verifier) followed(c copyOf, after []copyOf) bool {
	return slices.ContainsFunc(after, func(a copyOf) bool { return v.is(c.hash, a.sealed) })
}

// authentic reports whether a copy follows what is known before it, and whether anything is.
func (v *verifier) authentic(c copyOf, before []copyOf) (authentic, known bool) {
	if prev, ok := v.hashes[c.seq-1]; ok {
		known = true
		authentic = v.is(prev, c.sealed)
	}
	for _, b := range before {
		known = true
		authentic = authentic || v.is(b.hash, c.sealed)
	}
	return authentic, known
}
