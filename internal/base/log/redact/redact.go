// Package redact takes passwords out of messages: out of URLs, and out of the
// data source names of databases.
package redact

import (
	"regexp"
	"strings"
)

// Mask stands for what is taken out.
const Mask = "<redacted>"

var (
	// scheme begins a URL. The userinfo behind it is found by hand, because
	// passwords that are not escaped hold the characters that end it.
	scheme = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://`)
	// parameter is a value of a query that is a secret by its name.
	parameter = regexp.MustCompile(`(?i)([?&;](?:[a-z0-9_.-]*[_.-])?(?:password|passwd|passphrase|pass|pwd|secret|token|api_?key|signature|sig)=)[^\s&;#"'<>]+`)
	// source is the beginning of a data source name of MySQL's Go driver.
	source = regexp.MustCompile(`([^\s:/@"'` + "`" + `]+):\S+@(tcp|unix)\(`)
)

// Text returns a message without the passwords in its URLs. As in Salt, http
// and https URLs lose the user as well, which often is a token; of other schemes
// a user without a password stays, as in ssh://git@host. Query parameters that
// are named as secrets lose their value.
func Text(text string) string {
	if strings.Contains(text, "://") {
		text = parameter.ReplaceAllString(urls(text), "${1}"+Mask)
	}
	if strings.Contains(text, "@tcp(") || strings.Contains(text, "@unix(") {
		text = source.ReplaceAllString(text, "${1}:"+Mask+"@${2}(")
	}
	return text
}

// urls masks the userinfo of each URL in a text.
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

// userinfo returns the length of the userinfo at the beginning of what follows
// a scheme, 0 if there is none. A password with a raw slash, question mark or
// hash is seen by the port, which would be no number.
func userinfo(text string) int {
	if i := strings.Index(text, "://"); i >= 0 { // another URL, as in a list with commas
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

// masked is an error with another message.
type masked struct {
	text string
	err  error
}

func (m *masked) Error() string { return m.text }
func (m *masked) Unwrap() error { return m.err }
