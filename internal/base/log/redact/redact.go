// Package redact removes passwords from URLs and database data source names in
// messages.
package redact

import (
	"regexp"
	"strings"
)

// Mask replaces removed text.
const Mask = "<redacted>"

var (
	// scheme matches the beginning of a URL. The userinfo after it is searched
	// without a pattern, because unescaped passwords may contain the characters
	// that end it.
	scheme = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://`)
	// parameter matches a query parameter whose name shows that its value is
	// secret.
	parameter = regexp.MustCompile(`(?i)([?&;](?:[a-z0-9_.-]*[_.-])?(?:password|passwd|passphrase|pass|pwd|secret|token|api_?key|signature|sig)=)[^\s&;#"'<>]+`)
	// source matches the beginning of a data source name of MySQL's Go driver.
	source = regexp.MustCompile(`([^\s:/@"'` + "`" + `]+):\S+@(tcp|unix)\(`)
)

// Text returns a message without the passwords in its URLs. As in Salt, http and
// https URLs also lose the user name, which often is a token. In other schemes, a
// user without a password stays, as in ssh://git@host. Query parameters with
// names of secrets lose their values.
func Text(text string) string {
	if strings.Contains(text, "://") {
		text = parameter.ReplaceAllString(urls(text), "${1}"+Mask)
	}
	if strings.Contains(text, "@tcp(") || strings.Contains(text, "@unix(") {
		text = source.ReplaceAllString(text, "${1}:"+Mask+"@${2}(")
	}
	return text
}

// urls masks the userinfo of each URL in a string.
func urls(text string) string {
	var out strings.Builder
	for {
		at := scheme.FindStringIndex(text)
		if at == nil {
			break
		}
		start, web := at[1], strings.HasSuffix(strings.ToLower(text[at[0]:at[1]]), "http://") || strings.HasSuffix(strings.ToLower(text[at[0]:at[1]]), "https://")
		out.WriteString(text[:start])
		text = text[start:]
		if n := userinfo(text); n > 0 && (web || strings.Contains(text[:n], ":")) {
			out.WriteString(Mask)
			text = text[n:]
		}
	}
	out.WriteString(text)
	return out.String()
}

// userinfo returns the length of the userinfo after a scheme, 0 if there is none.
// A raw slash, question mark or hash in a password is recognized because the port
// would not be a number.
func userinfo(text string) int {
	if i := strings.Index(text, "://"); i >= 0 { // another URL follows, as in a comma-separated list
		text = text[:i]
	}
	if i := strings.IndexAny(text, " \t\r\n\"'`<>"); i >= 0 {
		text = text[:i]
	}
	authority := text
	if i := strings.IndexAny(text, "/?#"); i >= 0 {
		authority = text[:i]
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		return i
	}
	_, port, found := strings.Cut(authority, ":")
	if !found || strings.HasPrefix(authority, "[") || strings.Trim(port, "0123456789") == "" {
		return 0
	}
	return max(strings.LastIndexByte(text, '@'), 0)
}

// Error returns an error whose message is that of err without passwords. It
// returns err itself if there are none.
func Error(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if clean := Text(text); clean != text {
		return &masked{clean, err}
	}
	return err
}

// masked is an error with its message replaced.
type masked struct {
	text string
	err  error
}

func (m *masked) Error() string { return m.text }
func (m *masked) Unwrap() error { return m.err }
