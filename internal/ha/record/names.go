package record

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// The names of rows, below the path of the cluster and of its secret:
//
//	g/STREAM                   a random value that changes with each transaction of the stream
//	w/STREAM                   the master that removes outdated entries; see sweep
//	v/STREAM/ORIGIN            the number up to which the store has all changes of the origin
//	f/STREAM/ORIGIN            the highest number of a forgotten deletion of the origin
//	e/STREAM/ORIGIN/NUMBER     a change that counts
//	b/STREAM/ORIGIN/NUMBER/... parts of a large one
//	x/STREAM/ORIGIN/NUMBER     a change that a master could not read, for the others to write again
//	c, claim                   the keys of the cluster, and who may create them
func generationRow(stream string) string              { return "g/" + stream }
func sweepRow(stream string) string                   { return "w/" + stream }
func numberRow(stream, origin string) string          { return "v/" + stream + "/" + escape(origin) }
func forgotRow(stream, origin string) string          { return "f/" + stream + "/" + escape(origin) }
func entriesOf(stream, origin string) string          { return "e/" + stream + "/" + escape(origin) + "/" }
func partsOf(stream, origin string) string            { return "b/" + stream + "/" + escape(origin) + "/" }
func digits(n uint64) string                          { return fmt.Sprintf("%016x", n) }
func badRow(stream, origin, n string) string          { return "x/" + stream + "/" + escape(origin) + "/" + n }
func entryRow(stream, origin string, n uint64) string { return entriesOf(stream, origin) + digits(n) }

const (
	keysRow  = "c"
	claimRow = "claim"
)

// escape makes the name of an origin or cluster a single word of ASCII.
func escape(s string) string { return url.PathEscape(s) }

// last returns the last word of a name, and the origin before it.
func last(name, prefix string) (origin, word string) {
	rest := strings.TrimPrefix(name, prefix)
	i := strings.LastIndexByte(rest, '/')
	if i >= 0 {
		origin, word = rest[:i], rest[i+1:]
	} else {
		word = rest
	}
	return unescape(origin), word
}

func unescape(word string) string {
	s, err := url.PathUnescape(word)
	if err != nil {
		return word
	}
	return s
}

func number(word string) (uint64, bool) {
	n, err := strconv.ParseUint(word, 16, 64)
	return n, err == nil && len(word) == 16 && n > 0
}
