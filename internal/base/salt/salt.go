// Package salt holds the words of the field: ids, job ids, event tags, kinds
// of error and log levels. It is nearly without code, imports only the
// standard library, and every other package may import it.
package salt

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Version is the version of Salt whose wire protocol, files and texts Brine
// follows. It is what a peer sees as the saltversion grain.
const Version = "3007.10"

// MaxIDLength bounds a minion id: it is used as a file name.
const MaxIDLength = 255

// CheckID returns an error that says what is wrong with a minion id, or nil.
// An id names files in the pki and cache folders, so it must neither leave
// them nor meet the dot files beside the others there: no slash or backslash,
// no dot at its beginning. It is shown in logs and lists, so it must not steer
// a terminal or begin a line of its own: no control characters.
func CheckID(id string) error {
	switch {
	case id == "":
		return errors.New("minion id is empty")
	case len(id) > MaxIDLength:
		return fmt.Errorf("minion id %.40q... is longer than %d bytes", id, MaxIDLength)
	case id[0] == '.':
		return fmt.Errorf("minion id %q begins with a dot", id)
	case !utf8.ValidString(id):
		return fmt.Errorf("minion id %q is not UTF-8", id)
	case strings.ContainsFunc(id, func(r rune) bool { return r == '/' || r == '\\' || unicode.IsControl(r) }):
		return fmt.Errorf("minion id %q contains a slash, backslash or control character", id)
	}
	return nil
}

// CheckNewID is CheckID for the id of a minion that is not known yet. It also
// refuses what would be a pattern where a user names the minion, as in
// salt-key -d '*', and what a terminal shows as another id.
func CheckNewID(id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	if strings.ContainsAny(id, "*?[]") {
		return fmt.Errorf("minion id %q contains a character of patterns (*, ?, [ or ])", id)
	}
	if strings.TrimSpace(id) != id || strings.ContainsFunc(id, func(r rune) bool { return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) }) {
		return fmt.Errorf("minion id %q begins or ends with a space, or contains invisible characters", id)
	}
	return nil
}

// KeepReturn is the key in a Brine master's answer to a return that it could
// not store, with the reason: the minion keeps the return and sends it again
// later. Salt's minions do not look at the answer, and Salt's masters never
// give this one: after a failure of theirs the event is out already, so that
// sending again would do more harm than good.
const KeepReturn = "brine_keep_return"

// Tag joins the parts of an event tag with slashes under the base word
// "salt", leaving empty parts out.
func Tag(parts ...string) string {
	var b strings.Builder
	b.WriteString("salt")
	for _, p := range parts {
		if p != "" {
			b.WriteByte('/')
			b.WriteString(p)
		}
	}
	return b.String()
}
