package syndic

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/py/value"
)

// clock is a time that tests set.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func jid(n int) string { return fmt.Sprintf("20260101%012d", n) }

func testCommand(jid, tgt string) *value.Dict {
	return value.DictOf("jid", jid, "tgt", tgt, "tgt_type", "glob", "fun", "test.ping", "arg", &value.List{}, "ret", "")
}

func testReturn(n int) *value.Dict {
	return value.DictOf("fun", "test.ping", "item", value.DictOf("return", n, "retcode", 0, "success", true))
}

// waits lists what waits for a master: JID/ID=RETURN.
func waits(t *testing.T, b *book, to string) (out []string) {
	t.Helper()
	parcels, _ := b.parcels(to)
	for _, p := range parcels {
		for _, id := range p.ids {
			out = append(out, fmt.Sprintf("%s/%s=%v", p.jid, id, p.returns[id].Dict("item").At("return")))
		}
	}
	slices.Sort(out)
	return out
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, not %q", what, got, want)
	}
}

// take delivers everything that waits for a master.
func take(b *book, to string) {
	for {
		parcels, more := b.parcels(to)
		b.delivered(to, parcels)
		if !more {
			return
		}
	}
}

// TestBook: commands and returns survive a restart at any point, go to each master that asked, and
// only once; also after the journal was rewritten.
func TestBook(t *testing.T) {
	c := &clock{time.Unix(1_770_000_000, 0)}
	path := filepath.Join(t.TempDir(), "journal")
	log := slog.New(slog.DiscardHandler)
	b := openBook(path, c.now, log)
	again := func() {
		t.Helper()
		if b.file != nil {
			if err := b.rewrite(); err != nil {
				t.Fatal(err)
			}
		}
		b.close()
		b = openBook(path, c.now, log)
	}
	defer func() { b.close() }()
	one, two := jid(1), jid(2)
	if news, _ := b.asked("a", one, testCommand(one, "*")); !news {
		t.Error("a command is not news")
	}
	if news, late := b.asked("a", one, testCommand(one, "*")); news || late {
		t.Error("a repeated command is news")
	}
	if news, _ := b.asked("b", one, testCommand(one, "*")); news {
		t.Error("the command of another master is news")
	}
	again()
	waiting := b.commands()
	if len(waiting) != 1 || waiting[0].jid != one || waiting[0].load.Str("tgt") != "*" || !waiting[0].perhaps {
		t.Fatalf("after a restart these commands wait: %+v", waiting)
	}
	expect(t, "askers", b.published(&waiting[0], []string{"m1", "m2"}), "a", "b")
	if news, _ := b.asked("a", one, testCommand(one, "m1")); !news { // the next command of a batch
		t.Error("a command with another target is not news")
	}
	waiting = b.commands()
	b.published(&waiting[0], nil)
	if len(b.commands()) > 0 {
		t.Error("a published command waits")
	}
	for n := range 2 {
		if news := b.returned(one, "m1", testReturn(1), "a"); news != (n == 0) {
			t.Errorf("return %d is news: %v", n, news)
		}
	}
	b.returned(two, "x", testReturn(9), "a") // an own job
	if b.returned(jid(3), "x", testReturn(9), "") {
		t.Error("a return that no master asked for is queued")
	}
	again()
	expect(t, "open", b.open(9), one)
	expect(t, "for a", waits(t, b, "a"), one+"/m1=1", two+"/x=9")
	expect(t, "for b", waits(t, b, "b"), one+"/m1=1")
	take(b, "a")
	again()
	expect(t, "for a after delivery", waits(t, b, "a"))
	expect(t, "for b after delivery to a", waits(t, b, "b"), one+"/m1=1")
	take(b, "b")
	again()
	if b.returned(one, "m1", testReturn(1), "a") {
		t.Error("a delivered return is sent again")
	}
	b.returned(one, "m2", testReturn(2), "")
	expect(t, "open at the end", b.open(9))
	if _, late := b.asked("c", one, testCommand(one, "*")); !late {
		t.Error("the returns for a late master are not read again")
	}
	expect(t, "for the late master", waits(t, b, "c"), one+"/m2=2")
	expect(t, "open for the late master", b.open(9), one)
	b.returned(one, "m1", testReturn(1), "")
	b.looked(one)
	expect(t, "for the late master, after a look", waits(t, b, "c"), one+"/m1=1", one+"/m2=2")
	b.only([]string{"a", "b"})
	if _, n := b.count(); n != 2 { // m1 and m2, for a and b
		t.Errorf("%d returns wait when c is gone", n)
	}
}

// TestReassign: what belongs to no master goes to another one; what one asked for does not.
func TestReassign(t *testing.T) {
	c := &clock{time.Unix(1_770_000_000, 0)}
	b := openBook(filepath.Join(t.TempDir(), "journal"), c.now, slog.New(slog.DiscardHandler))
	defer b.close()
	b.asked("a", jid(1), testCommand(jid(1), "*"))
	b.returned(jid(1), "m", testReturn(1), "")
	b.returned(jid(2), "m", testReturn(2), "a")
	if n := b.reassign("a", "b"); n != 1 {
		t.Errorf("%d returns moved", n)
	}
	expect(t, "for a", waits(t, b, "a"), jid(1)+"/m=1")
	expect(t, "for b", waits(t, b, "b"), jid(2)+"/m=2")
}

// TestRefusedReturns: a return that a master cannot store is sent again, alone and later, and delays
// no other one.
func TestRefusedReturns(t *testing.T) {
	c := &clock{time.Unix(1_770_000_000, 0)}
	b := openBook(filepath.Join(t.TempDir(), "journal"), c.now, slog.New(slog.DiscardHandler))
	defer b.close()
	for n := range 3 {
		b.returned(jid(n), "m", testReturn(n), "a")
	}
	parcels, _ := b.parcels("a")
	b.refused(parcels)
	expect(t, "at once", waits(t, b, "a"))
	if at := b.nextAttempt("a"); !at.After(c.t) {
		t.Errorf("the next attempt is at %v", at)
	}
	b.returned(jid(7), "m", testReturn(7), "a")
	expect(t, "the new one", waits(t, b, "a"), jid(7)+"/m=7")
	take(b, "a")
	c.t = c.t.Add(time.Minute)
	for n := range 3 {
		parcels, more := b.parcels("a")
		if len(parcels) != 1 || len(parcels[0].ids) != 1 || !more {
			t.Fatalf("attempt %d has %+v, %v", n, parcels, more)
		}
		b.delivered("a", parcels)
	}
	if at := b.nextAttempt("a"); !at.IsZero() {
		t.Errorf("an attempt is due at %v", at)
	}
}

// TestBookLimits: messages, jobs and returns are bounded, and old jobs are forgotten.
func TestBookLimits(t *testing.T) {
	c := &clock{time.Unix(1_770_000_000, 0)}
	path := filepath.Join(t.TempDir(), "journal")
	b := openBook(path, c.now, slog.New(slog.DiscardHandler))
	defer func() { b.close() }()
	for n := range maxParcelReturns + 10 {
		b.returned(jid(n), "m", testReturn(n), "a")
	}
	parcels, more := b.parcels("a")
	if len(parcels) != maxParcelReturns || !more || parcels[0].jid != jid(0) {
		t.Errorf("%d returns in a message", len(parcels))
	}
	take(b, "a")
	// Returns that are delivered leave the journal.
	long := strings.Repeat("x", 1<<20)
	for n := range 20 {
		ret := testReturn(n)
		ret.Dict("item").Set("return", long)
		b.returned(jid(n), "big", ret, "a")
		take(b, "a")
	}
	if st, err := os.Stat(path); err != nil || st.Size() > 2*garbage {
		t.Errorf("the journal has %v, %v", st.Size(), err)
	}
	c.t = c.t.Add(keepJobs + time.Minute)
	b.asked("a", jid(9999), testCommand(jid(9999), "*"))
	if jobs, n := b.count(); jobs != 1 || n != 0 {
		t.Errorf("%d jobs and %d returns after a day", jobs, n)
	}
}

// TestBookWithoutDisk: without its file a book works in memory.
func TestBookWithoutDisk(t *testing.T) {
	c := &clock{time.Unix(1_770_000_000, 0)}
	path := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(path, []byte("this is no journal but a text"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := openBook(path, c.now, slog.New(slog.DiscardHandler))
	defer b.close()
	b.asked("a", jid(1), testCommand(jid(1), "*"))
	b.asked("b", jid(1), testCommand(jid(1), "*"))
	b.returned(jid(1), "m", testReturn(1), "")
	expect(t, "for a", waits(t, b, "a"), jid(1)+"/m=1")
	take(b, "a")
	expect(t, "for b", waits(t, b, "b"), jid(1)+"/m=1")
}
