package federation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

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
)

// book keeps small records on disk. Changes that wait at the same time share one flush.
type book struct {
	file    *boltfile.File
	changes chan change
	quit    chan struct{}
	ended   chan struct{}
}

// change replaces or, without content, removes a record.
type change struct {
	bucket, key string
	content     []byte
	done        chan error // nil if no caller waits
}

// openBook opens or creates a book.
func openBook(path string) (*book, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the directory of the federation: %w", err)
	}
	file, err := boltfile.Open(path, bolt.Options{Timeout: 5 * time.Second})
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot open %s: %w", path, err)
	}
	b := &book{file: file, changes: make(chan change, 1024), quit: make(chan struct{}), ended: make(chan struct{})}
	err = file.Update(func(tx *bolt.Tx) error {
		for _, name := range []string{jobsBucket, summariesBucket, ownersBucket, sitesBucket, overBucket} {
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

func (b *book) run() {
	defer close(b.ended)
	for {
		select {
		case c := <-b.changes:
			b.apply(c)
		case <-b.quit:
			for {
				select {
				case c := <-b.changes:
					b.apply(c)
				default:
					return
				}
			}
		}
	}
}

// apply stores a change, with others that wait.
func (b *book) apply(first change) {
	all := []change{first}
	for len(all) < maxChanges {
		select {
		case c := <-b.changes:
			all = append(all, c)
			continue
		default:
		}
		break
	}
	err := b.file.Update(func(tx *bolt.Tx) error {
		for _, c := range all {
			if err := c.to(tx.Bucket([]byte(c.bucket))); err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range all {
		if c.done != nil {
			c.done <- err
		}
	}
}

func (c *change) to(bucket *bolt.Bucket) error {
	if c.content == nil {
		return bucket.Delete([]byte(c.key))
	}
	return bucket.Put([]byte(c.key), c.content)
}

// put stores a record, and returns when it is on disk.
func (b *book) put(bucket, key string, d *value.Dict) error { return <-b.begin(bucket, key, d) }

// begin begins to store a record. Records of one key are stored in the order of the calls. The result
// receives once, when the record is on disk.
func (b *book) begin(bucket, key string, d *value.Dict) <-chan error {
	c := change{bucket: bucket, key: key, done: make(chan error, 1)}
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
	b.send(change{bucket: bucket, key: key, content: content})
}

// remove removes a record without waiting.
func (b *book) remove(bucket, key string) { b.send(change{bucket: bucket, key: key}) }

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
