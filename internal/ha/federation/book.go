package federation

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/boltfile"
)

// The buckets of a book.
const (
	jobsBucket      = "jobs"
	summariesBucket = "summaries"
	ownersBucket    = "owners"
	sitesBucket     = "sites"
	overBucket      = "over"
	decisionsBucket = "decisions"
)

// book keeps small records on disk. Changes that wait at the same time share one flush.
type book struct {
	file    *boltfile.File
	limited *ratelimit.Log
	changes chan change
	quit    chan struct{}
	ended   chan struct{}
}

// change replaces or, without content, removes a record.
type change struct {
	place
	content []byte
	done    chan error // nil if no caller waits
	urgent  bool
}

// place is where a record is.
type place struct{ bucket, key string }

const (
	// flushPause is how long a change may wait for others that share its flush, unless it is urgent. A
	// flush would delay the next urgent one, and those of other files on the same disk.
	flushPause = 20 * time.Millisecond
	// flushRetry is the pause after a failed flush.
	flushRetry = time.Second
)

// openBook opens or creates a book.
func openBook(path string, log *slog.Logger) (*book, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the directory of the federation: %w", err)
	}
	file, err := boltfile.Open(path, bolt.Options{Timeout: 5 * time.Second})
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot open %s: %w", path, err)
	}
	b := &book{file: file, limited: ratelimit.NewLog(log, 1, time.Minute), changes: make(chan change, 1024), quit: make(chan struct{}), ended: make(chan struct{})}
	err = file.Update(func(tx *bolt.Tx) error {
		for _, name := range []string{jobsBucket, summariesBucket, ownersBucket, sitesBucket, overBucket, decisionsBucket} {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot prepare %s: %w", path, err), file.Close())
	}
	go b.run()
	return b, nil
}

// close stores what waits, and closes the file.
func (b *book) close() error {
	close(b.quit)
	<-b.ended
	return b.file.Close()
}

// maxChanges bounds the changes of one transaction.
const maxChanges = 1000

// waiting are the changes of the next transaction. Only the last change of a record counts.
type waiting struct {
	content map[place][]byte
	// kept are the last changes that no caller waits for: they stay if the transaction fails.
	kept map[place][]byte
	done map[place][]chan error
}

func newWaiting() *waiting {
	return &waiting{map[place][]byte{}, map[place][]byte{}, map[place][]chan error{}}
}

func (w *waiting) add(c change) {
	w.content[c.place] = c.content
	if c.done == nil {
		w.kept[c.place] = c.content
	} else {
		w.done[c.place] = append(w.done[c.place], c.done)
	}
}

// answer passes the result of a transaction to the callers that wait, who repeat what failed.
func (w *waiting) answer(err error) {
	for _, all := range w.done {
		for _, done := range all {
			done <- err
		}
	}
	clear(w.done)
	clear(w.content)
	if err == nil {
		clear(w.kept)
		return
	}
	maps.Copy(w.content, w.kept)
}

func (b *book) run() {
	defer close(b.ended)
	w := newWaiting()
	var flush <-chan time.Time
	for {
		select {
		case c := <-b.changes:
			urgent := b.gather(w, c)
			switch {
			case urgent || len(w.content) >= maxChanges:
				flush = b.flush(w)
			case flush == nil:
				flush = time.After(flushPause)
			}
		case <-flush:
			flush = b.flush(w)
		case <-b.quit:
			for {
				select {
				case c := <-b.changes:
					w.add(c)
					continue
				default:
				}
				break
			}
			b.flush(w)
			return
		}
	}
}

// gather adds a change and those that wait behind it, and reports whether one is urgent.
func (b *book) gather(w *waiting, c change) (urgent bool) {
	for {
		w.add(c)
		urgent = urgent || c.urgent
		if len(w.content) >= maxChanges {
			return urgent
		}
		select {
		case c = <-b.changes:
		default:
			return urgent
		}
	}
}

// flush stores the changes. If that fails, those that no caller waits for are kept, and retry fires when
// they are due again.
func (b *book) flush(w *waiting) (retry <-chan time.Time) {
	if len(w.content) == 0 {
		return nil
	}
	err := b.file.Update(func(tx *bolt.Tx) error {
		for at, content := range w.content {
			if err := store(tx.Bucket([]byte(at.bucket)), at.key, content); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.limited.Log(slog.LevelError, "cannot store what happened to commands of the federation; retrying", "err", err)
		retry = time.After(flushRetry)
	}
	w.answer(err)
	return retry
}

func store(bucket *bolt.Bucket, key string, content []byte) error {
	if content == nil {
		return bucket.Delete([]byte(key))
	}
	return bucket.Put([]byte(key), content)
}

// put stores a record, and returns when it is on disk.
func (b *book) put(bucket, key string, d *value.Dict) error { return <-b.begin(bucket, key, d, true) }

// begin begins to store a record. Records of one key are stored in the order of the calls. An urgent
// one is flushed at once. The result receives once, when the record is on disk.
func (b *book) begin(bucket, key string, d *value.Dict, urgent bool) <-chan error {
	c := change{place: place{bucket, key}, done: make(chan error, 1), urgent: urgent}
	var err error
	if c.content, err = msgpack.Marshal(d, msgpack.NewSpec); err != nil {
		c.done <- salt.Errorf(salt.Invalid, "cannot record a job of the federation: %w", err)
		return c.done
	}
	select {
	case b.changes <- c:
	case <-b.quit:
		c.done <- salt.Errorf(salt.Unavailable, "the master stops")
	}
	return c.done
}

// later stores a record without waiting. It may be lost with the process, so that the other end
// repeats something.
func (b *book) later(bucket, key string, d *value.Dict) {
	content, err := msgpack.Marshal(d, msgpack.NewSpec)
	if err != nil {
		return // what was decoded can be encoded
	}
	b.send(change{place: place{bucket, key}, content: content})
}

// remove removes a record without waiting.
func (b *book) remove(bucket, key string) { b.send(change{place: place{bucket, key}}) }

func (b *book) send(c change) {
	select {
	case b.changes <- c:
	case <-b.quit:
	}
}

// each calls fn for the records of a bucket whose keys begin with prefix. It skips damaged ones.
func (b *book) each(bucket, prefix string, fn func(key string, d *value.Dict)) error {
	return b.file.View(func(tx *bolt.Tx) error {
		c := tx.Bucket([]byte(bucket)).Cursor()
		for k, v := c.Seek([]byte(prefix)); k != nil && len(k) >= len(prefix) && string(k[:len(prefix)]) == prefix; k, v = c.Next() {
			any, err := msgpack.UnmarshalTyped(v)
			if d, ok := any.(*value.Dict); err == nil && ok {
				fn(string(k), d)
			}
		}
		return nil
	})
}
