package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	pyjson "brine/internal/py/json"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// text returns a report in one line.
func (r *Report) text() string {
	var parts []string
	for _, x := range r.Ranges {
		parts = append(parts, fmt.Sprintf("%d-%d", x.From.Seq, x.To.Seq))
	}
	for _, f := range r.Breaks {
		parts = append(parts, fmt.Sprintf("after %d: %s", f.After.Seq, f.What))
	}
	for _, f := range r.Notes {
		parts = append(parts, fmt.Sprintf("(after %d: %s)", f.After.Seq, f.What))
	}
	return strings.Join(parts, "; ")
}

// chained is a log of a test.
type chained struct {
	*testing.T
	*Log
	path string
	n    int
}

func open(t *testing.T, path string) *chained {
	t.Helper()
	l, err := Open(path, secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &chained{T: t, Log: l, path: path}
}

// record returns the n-th record.
func record(n int) *value.Dict {
	return value.DictOf("time", fmt.Sprintf("2026-01-02T03:04:%02d.000000", n%60), "user",
		fmt.Sprint("u", n), "fun", "a\nb\u00f6\", \"chain\": \"x", "result", "done")
}

func (c *chained) add(n int) {
	c.Helper()
	for range n {
		c.n++
		if _, err := c.Log.Add(record(c.n)); err != nil {
			c.Fatal(err)
		}
	}
}

func (c *chained) verifies(want string) {
	c.Helper()
	v, err := c.verify(nil)
	if err != nil {
		c.Fatal(err)
	}
	if got := v.rep.text(); got != want {
		c.Errorf("%s\nwant %s", got, want)
	}
}

// again closes the log, lets change the lines of its file, and opens it.
func (c *chained) again(change func(lines []string) []string) {
	c.Helper()
	if err := c.Close(); err != nil {
		c.Fatal(err)
	}
	edit(c.T, c.path, change)
	c.Log = open(c.T, c.path).Log
}

func edit(t *testing.T, path string, change func(lines []string) []string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(b), "\n")
	if err := os.WriteFile(path, []byte(strings.Join(change(lines[:len(lines)-1]), "")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestChain: what is changed in the file while the master does not run is found, and where.
func TestChain(t *testing.T) {
	short := strings.NewReplacer("removed, or changed with what follows", "AFTER", "which another program or an older version wrote, or which was changed", "ODD")
	for name, c := range map[string]struct {
		change func(l []string) []string
		want   string
	}{
		"nothing": {func(l []string) []string {
			return l
		}, "1-12"},
		"a changed record": {func(l []string) []string {
			l[4] = strings.Replace(l[4], "u4", "v4", 1)
			return l
		}, "1-4; 6-12; after 4: record 5 was changed"},
		"changed records": {func(l []string) []string {
			l[4], l[5] = "{"+l[4][2:], "{"+l[5][2:]
			return l
		}, "1-4; 7-12; after 4: records 5 to 6 were changed"},
		"a changed hash": {func(l []string) []string {
			l[4] = flip(l[4], 4)
			return l
		}, "1-4; 7-12; after 4: records 5 to 6 were changed"},
		"a removed record": {func(l []string) []string {
			return slices.Delete(l, 4, 5)
		}, "1-4; 7-12; after 4: record 5 is missing: AFTER"},
		"removed records": {func(l []string) []string {
			return slices.Delete(l, 3, 8)
		}, "1-3; 10-12; after 3: records 4 to 8 are missing: AFTER"},
		"the end removed": {func(l []string) []string {
			return l[:8]
		}, "1-8; 13-13; after 8: records 9 to 12 are missing, found at TIME: removed, or the file is from a backup"},
		"all removed": {func(l []string) []string {
			return nil
		}, "13-13; after 0: records 1 to 12 are missing, found at TIME: removed, or the file is from a backup"},
		"the first removed": {func(l []string) []string {
			return l[1:]
		}, "3-13; after 0: the beginning of a file is missing or was changed; after 0: what was before record 3 is missing or was changed"},
		"a repeated record": {func(l []string) []string {
			return slices.Insert(l, 6, l[4])
		}, "1-6; 7-12; after 6: 1 line was inserted"},
		"a moved record": {func(l []string) []string {
			x := l[4]
			return slices.Insert(slices.Delete(l, 4, 5), 6, x)
		}, "1-4; 7-7; 8-12; after 4: record 5 is missing: AFTER; after 7: 1 line was inserted"},
		"an inserted line": {func(l []string) []string {
			return slices.Insert(l, 6, `{"user": "x", "result": "done"}`+"\n")
		}, "1-6; 7-12; after 6: 1 line without a hash, ODD"},
		"a line at the end": {func(l []string) []string {
			return append(l, `{"user": "x"}`+"\n")
		}, "1-12; after 12: 1 line without a hash, ODD"},
		"a forged end": {func(l []string) []string {
			return append(l, strings.Replace(l[11], `"seq": 12`, `"seq": 13`, 1))
		}, "1-12; after 12: record 13 was changed or inserted at the end"},
		"swapped": {func(l []string) []string {
			l[4], l[5] = l[5], l[4]
			return l
		}, "1-4; 5-5; 8-12; after 4: 1 line was inserted; after 5: record 6 is missing: AFTER"},
		"the last changed": {func(l []string) []string {
			l[11] = strings.Replace(l[11], "u11", "v11", 1)
			return l
		}, "1-11; after 11: record 12 was changed or inserted at the end"},
		"a long line": {func(l []string) []string {
			return slices.Insert(l, 6, strings.Repeat("x", 3<<20)+"\n")
		}, "1-6; 7-12; after 6: 1 line without a hash, ODD"},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, filepath.Join(t.TempDir(), "audit"))
			l.add(11)
			l.verifies("1-12")
			l.again(c.change)
			v, err := l.verify(nil)
			if err != nil {
				t.Fatal(err)
			}
			got := v.rep.text()
			if i := strings.Index(got, "found at "); i >= 0 {
				got = got[:i+9] + "TIME" + got[i+9+len("2026-01-02T03:04:05.000000"):]
			}
			if got = short.Replace(got); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

// flip changes a digit of the hash of a record.
func flip(line string, at int) string {
	b := []byte(line)
	i := len(b) - len(`"}`) - 2 - at
	if b[i] == '0' {
		b[i] = '1'
	} else {
		b[i] = '0'
	}
	return string(b)
}

// kill ends the log as a crash does, with what it stored last about its end.
func (c *chained) kill() {
	c.Helper()
	b, err := os.ReadFile(c.headPath())
	if err == nil {
		err = c.Close()
	}
	if err == nil {
		err = os.WriteFile(c.headPath(), b, 0o600)
	}
	if err != nil {
		c.Fatal(err)
	}
}

// reads returns a file.
func reads(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func writes(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const crashed = "the master had not closed the file: a crash may have lost the newest records"

// TestCrash: a master that was killed, and a record whose end did not reach the disk, are told, and are no alarm.
func TestCrash(t *testing.T) {
	c := open(t, filepath.Join(t.TempDir(), "audit"))
	c.add(3)
	c.kill()
	c.Log = open(t, c.path).Log
	c.add(1)
	c.verifies("1-6; (after 4: " + crashed + ")")
	c.kill()
	edit(t, c.path, func(l []string) []string { l[5] = l[5][:40]; return l })
	c.Log = open(t, c.path).Log
	c.add(1)
	c.verifies("1-7; (after 4: " + crashed + "); (after 5: the end of a record is missing: a crash or a full disk cut it off); (after 5: " + crashed + ")")
	// A change of that end is no crash.
	edit(t, c.path, func(l []string) []string { l[5] = l[5][:20] + "\n"; return l })
	if v, err := c.verify(nil); err != nil || v.rep.Whole() {
		t.Errorf("%s, %v", v.rep.text(), err)
	}
}

// TestRotation: the chain goes on in a new file, also where the rotation was not completed, and the older file belongs to it.
func TestRotation(t *testing.T) {
	c := open(t, filepath.Join(t.TempDir(), "audit"))
	c.add(5)
	c.max = c.size + 1
	c.add(1)
	c.max = maxSize
	c.add(4)
	c.verifies("1-12")
	older := reads(t, c.oldPath())
	if err := os.Remove(c.oldPath()); err != nil {
		t.Fatal(err)
	}
	c.verifies("7-12; after 0: records 1 to 6 are missing: the file before this one was removed")
	writes(t, c.oldPath(), older)
	edit(t, c.oldPath(), func(l []string) []string { return l[2:] })
	c.verifies("4-12; after 0: the beginning of a file is missing or was changed; after 0: what was before record 4 is missing or was changed; " +
		"after 0: records 1 to 2 are missing at the beginning")
	writes(t, c.oldPath(), older)
	edit(t, c.oldPath(), func(l []string) []string { return l[:4] })
	c.verifies("1-4; 7-12; after 4: records 5 to 6 are missing")
	writes(t, c.oldPath(), older)
	// The records of the oldest file go with their file.
	c.max = c.size + 1
	c.add(1)
	c.max = maxSize
	c.add(2)
	c.verifies("7-16")
	// The master ended between two steps of a rotation.
	if err := errors.Join(c.Close(), os.Rename(c.path, c.oldPath())); err != nil { // rename: as a rotation does
		t.Fatal(err)
	}
	c.Log = open(t, c.path).Log
	c.add(1)
	c.verifies("13-18")
}

// TestUpgrade: records of older versions count from then on as they are.
func TestUpgrade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	writes(t, path+".1", "{\"user\": \"older\"}\n")
	writes(t, path, "{\"user\": \"old\"}\n{\"user\": \"old\"}\n{\"us")
	c := open(t, path)
	c.add(2)
	c.verifies("1-3")
	if v, err := c.verify(nil); err != nil || v.rep.Unhashed != 4 {
		t.Errorf("%+v, %v", v.rep, err)
	}
	c.again(func(l []string) []string { return l })
	c.verifies("1-3")
	before := reads(t, path)
	for _, change := range []func(l []string) []string{
		func(l []string) []string { l[0] = strings.Replace(l[0], "old", "new", 1); return l }, func(l []string) []string { return l[1:] },
		func(l []string) []string { return slices.Insert(l, 0, "{}\n") }, func(l []string) []string { return l[3:] },
	} {
		edit(t, path, change)
		if v, err := c.verify(nil); err != nil || v.rep.Whole() {
			t.Errorf("%s, %v", v.rep.text(), err)
		}
		writes(t, path, before)
	}
	c.verifies("1-3")
	list, err := c.Recent(9, all)
	if err != nil || len(list) != 5 || list[0].Str("user") != "u2" || list[4].Str("user") != "older" {
		t.Errorf("%v, %v", list, err)
	}
}

// TestFromBackup: an older file in place of this one is found, also while the master runs, and no number is used twice.
func TestFromBackup(t *testing.T) {
	c := open(t, filepath.Join(t.TempDir(), "audit"))
	c.add(3)
	backup := reads(t, c.path)
	c.add(3)
	temp := c.path + ".new"
	writes(t, temp, backup)
	if err := os.Rename(temp, c.path); err != nil { // rename: as a program that restores files
		t.Fatal(err)
	}
	c.verifies("1-4; after 4: records 5 to 7 are missing at the end")
	c.reopen()
	c.add(1)
	v, err := c.verify(nil)
	if err != nil || len(v.rep.Breaks) != 1 || v.last.Seq != 9 || !strings.HasPrefix(v.rep.text(), "1-4; 8-9; after 4: records 5 to 7 are missing, found at") {
		t.Errorf("%s, %v", v.rep.text(), err)
	}
	if err := os.Remove(c.path); err != nil {
		t.Fatal(err)
	}
	c.reopen()
	c.add(1)
	if v, err := c.verify(nil); err != nil || !strings.HasPrefix(v.rep.text(), "10-11; after 0: records 1 to 9 are missing, found at") {
		t.Errorf("%s, %v", v.rep.text(), err)
	}
	if err := errors.Join(c.Close(), os.Remove(c.headPath())); err != nil {
		t.Fatal(err)
	}
	c.Log = open(t, c.path).Log
	if v, err := c.verify(nil); err != nil || !strings.Contains(v.rep.text(), "after 11: the file with the number of the last record was missing at") {
		t.Errorf("%s, %v", v.rep.text(), err)
	}
	writes(t, c.headPath(), "{")
	c.again(func(l []string) []string { return l })
	if v, err := c.verify(nil); err != nil || strings.Contains(v.rep.text(), "damaged") { // closing wrote it again
		t.Errorf("%s, %v", v.rep.text(), err)
	}
}

// TestOtherKey: records of an earlier key of the master cannot be checked, and are no alarm; those of any other key at the end are one.
func TestOtherKey(t *testing.T) {
	c := open(t, filepath.Join(t.TempDir(), "audit"))
	c.add(3)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Open(c.path, []byte("another"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c.Log = l
	c.add(2)
	c.verifies("5-7; (after 4: records 1 to 4 were made with another key: not checked)")
	edit(t, c.path, func(l []string) []string { return slices.Delete(l, 2, 3) })
	c.verifies("5-7; after 2: record 3 is missing; (after 4: records 1 to 4 were made with another key: not checked)")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	v := &verifier{seal: newSealer(secret), rep: &Report{}, marks: map[int64]bool{}}
	for _, line := range strings.Split(strings.TrimSpace(reads(t, c.path)), "\n") {
		v.line([]byte(line), int64(len(line)), true)
	}
	v.end(v.last.Seq, v.prev, 0)
	if v.rep.Whole() {
		t.Error(v.rep.text())
	}
}

// TestFullDisk: the chain is whole although records could not be written, or only a part of one that cannot be removed again.
func TestFullDisk(t *testing.T) {
	c := open(t, filepath.Join(t.TempDir(), "audit"))
	c.add(2)
	full := func(f *os.File, b []byte) (int, error) {
		n, err := f.Write(b[:len(b)/2])
		return n, errors.Join(err, syscall.ENOSPC)
	}
	c.write = full
	for range 3 {
		if _, err := c.Add(record(0)); !errors.Is(err, syscall.ENOSPC) {
			t.Error(err)
		}
	}
	c.verifies("1-3")
	c.write = (*os.File).Write
	c.add(1)
	c.verifies("1-5; (after 3: 3 records could not be written (a full disk?): the master's log has them)")
	c.part = 7 // what Truncate leaves if it fails
	c.f.WriteString(`{"user"`)
	c.size += 7
	c.verifies("1-5; (after 3: 3 records could not be written (a full disk?): the master's log has them); " +
		"(after 5: the end of a record is missing: a full disk cut it off)")
	c.add(1)
	c.verifies("1-7; (after 3: 3 records could not be written (a full disk?): the master's log has them); " +
		"(after 5: the end of a record is missing: a crash or a full disk cut it off)")
	// The disk is full when the master starts.
	c.kill()
	c.Log = open(t, c.path).Log
	c.add(1)
	if v, err := c.verify(nil); err != nil || !v.rep.Whole() || v.last.Seq != 9 {
		t.Errorf("%s, %v", v.rep.text(), err)
	}
}

// TestCopies: copies elsewhere show what both were before.
func TestCopies(t *testing.T) {
	c := open(t, filepath.Join(t.TempDir(), "audit"))
	var copies []string
	add := func(n int) {
		for range n {
			c.n++
			d := record(c.n)
			end, err := c.Add(d)
			if err != nil {
				t.Fatal(err)
			}
			end.Set(d)
			text, err := pyjson.Dump(d, pyjson.Format{ASCII: true})
			if err != nil {
				t.Fatal(err)
			}
			copies = append(copies, text)
		}
	}
	check := func(what, want string, copies []string) {
		t.Helper()
		r, err := c.VerifyWith(copies)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(r.text(), " ", r.Copies, " ", r.Lacking); got != want {
			t.Errorf("%s: %s\nwant %s", what, got, want)
		}
	}
	add(3)
	c.again(func(l []string) []string { return l })
	add(3)
	lines := strings.Split(reads(t, c.path), "\n")
	for i, text := range copies {
		if text != lines[i+1] {
			t.Errorf("%s, in the file %s", text, lines[i+1])
		}
	}
	check("equal", "1-7 6 0", copies)
	check("none", "1-7 0 0", nil)
	check("one lacks", "1-7 5 1", slices.Delete(slices.Clone(copies), 2, 3))
	changed := slices.Clone(copies)
	changed[2] = strings.Replace(changed[2], "u3", "v3", 1)
	check("changed", "1-7; after 4: the copy of record 4 in the console_store was changed or inserted 6 0", changed)
	check("inserted", "1-7; after 8: the copy of record 8 in the console_store was changed or inserted 7 0",
		append(slices.Clone(copies), strings.Replace(copies[5], `"seq": 7`, `"seq": 8`, 1)))
	check("hostile", "1-7 9 0", append(slices.Clone(copies), "", `{"`, strings.Repeat("x", 1<<20)))
	if list, err := pyjson.Load(copies[0]); err != nil || list.(*value.Dict).Str("hash") == "" {
		t.Errorf("%v, %v", list, err)
	}
	// A master whose disk was lost begins again.
	lost := open(t, filepath.Join(t.TempDir(), "audit"))
	lost.add(3)
	r, err := lost.VerifyWith(copies)
	if want := "1-4; after 2: 6 records with the numbers 2 to 7 in the console_store are not in the files"; err != nil || r.text() != want {
		t.Errorf("%s, %v\nwant %s", r.text(), err, want)
	}
	// A crash lost records that the copies have: they are named. The numbers are used again.
	c.kill()
	edit(t, c.path, func(l []string) []string { return l[:5] })
	writes(t, c.headPath(), string(headOf(t, c.Log, lines[4])))
	c.Log = open(t, c.path).Log
	add(2)
	check("lost in a crash", "1-8; (after 5: "+crashed+"); (after 6: 2 records with the numbers 6 to 7 in the console_store are not in the files) 8 0", copies)
	// Without a crash they were removed.
	c.again(func(l []string) []string { return l[:6] })
	if r, err := c.VerifyWith(copies); err != nil || r.Whole() {
		t.Errorf("%s, %v", r.text(), err)
	}
}

// headOf returns the head of a log whose last record was a line.
func headOf(t *testing.T, l *Log, line string) []byte {
	t.Helper()
	x, ok := parse([]byte(line))
	b, err := l.seal.headText(head{Seq: x.seq, Hash: x.hash.String()})
	if !ok || err != nil {
		t.Fatal(line, err)
	}
	return b
}

// FuzzVerify: a file that differs from what the log wrote is never whole.
func FuzzVerify(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	dir := tf.TempDir()
	l, err := Open(filepath.Join(dir, "audit"), secret)
	if err != nil {
		f.Fatal(err)
	}
	for i := range 4 {
		if _, err := l.Add(record(i)); err != nil {
			f.Fatal(err)
		}
	}
	text, err := os.ReadFile(l.path)
	if err != nil {
		f.Fatal(err)
	}
	if err := l.Close(); err != nil {
		f.Fatal(err)
	}
	// The time of the mark must not change the seeds.
	f.Add(0, 0, []byte{})
	f.Add(40, 1, []byte("x"))
	f.Add(len(text), 0, []byte("\n"))
	f.Add(len(text)-10, 10, []byte{})
	f.Add(200, 300, []byte("{}\n"))
	f.Fuzz(func(t *testing.T, at, cut int, with []byte) {
		at = max(min(at, len(text)), 0)
		cut = max(min(cut, len(text)-at), 0)
		changed := slices.Concat(text[:at], with, text[at+cut:])
		v := &verifier{seal: newSealer(secret), rep: &Report{}, marks: map[int64]bool{}, hashes: map[int64]link{}}
		lines := newLines(bytes.NewReader(changed))
		for {
			line, whole, err := lines.next()
			if err != nil {
				break
			}
			v.line(line, lines.length, whole)
		}
		v.end(l.seq, l.last, 0)
		if v.rep.Whole() != bytes.Equal(text, changed) {
			t.Errorf("%q: %s", changed, v.rep.text())
		}
		v.copies(strings.Split(string(with), "\n"))
		if d := v.rep.Dict(); d.At("whole") != v.rep.Whole() {
			t.Error(d)
		}
	})
}
