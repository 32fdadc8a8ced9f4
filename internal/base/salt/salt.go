// Package salt has the basic types of Salt: minion ids, job ids, event tags and
// kinds of error. It imports only the standard library, and every other package
// may import it.
package salt

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Version is the version of Salt whose wire protocol, files and messages Brine
// follows. It is the value of the grain saltversion.
const Version = "3007.10"

// BrineVersion is the version of Brine, and the value of the grain brine_version. It is a variable for
// -ldflags -X alone, by which tests build a program with another version.
var BrineVersion = "0.1.0"

// MaxIDLength bounds a minion id: it is used as a file name.
const MaxIDLength = 255

// CheckID returns an error if a minion id is invalid. An id is a file name in
// the pki and cache directories, so it must not leave them or clash with their
// dot files: no slash or backslash, no leading dot. It is shown in logs and
// lists, so it must not contain terminal sequences or line ends: no control
// characters.
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

// CheckNewID checks the id of a new minion. It also rejects ids that are patterns
// where a user names a minion, as in salt-key -d '*', and ids that a terminal
// shows as another id.
func CheckNewID(id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	if strings.ContainsAny(id, "*?[]") {
		return fmt.Errorf("minion id %q contains a pattern character (*, ?, [ or ])", id)
	}
	if strings.TrimSpace(id) != id || strings.ContainsFunc(id, func(r rune) bool { return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) }) {
		return fmt.Errorf("minion id %q begins or ends with a space, or contains invisible characters", id)
	}
	return nil
}

// ApprovedBy is the key of a job with the name of the second user who approved it.
const ApprovedBy = "approved_by"

// SamePerson reports whether two names of users may be those of one person, for whom an approval by the other name must not count: directories such
// as LDAP ignore case and outer blanks.
func SamePerson(a, b string) bool {
	return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b))
}

// StandbyJobs is a key in a Brine master's answer to a minion's status report: true
// if minions run the master's jobs while it is a standby.
const StandbyJobs = "standby_jobs"

// JobRecord is the key of a return with the signed record of its job, as the
// publishing master sent it to the minion. It is for another master.
const JobRecord = "brine_record"

// KeepReturn is the key in a Brine master's reply to a return that it could not
// store. Its value is the reason. The minion keeps the return and sends it
// again later. Salt's minions ignore the reply. Salt's masters never send this
// key: they fire the event before storing, so that sending again would repeat
// it.
const KeepReturn = "brine_keep_return"

// Tag joins "salt" and the parts of an event tag with slashes, omitting empty
// parts.
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
