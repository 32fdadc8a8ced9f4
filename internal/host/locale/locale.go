// Package locale reads the language, the character set and the time zone of
// programs of a machine.
package locale

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"strings"
	"time"

	"brine/internal/host"
)

// Info is the locale of programs. Language and Charset are empty in the C
// locale.
type Info struct {
	Language string // "de_DE"
	Charset  string // "UTF-8"
	Zone     string // the abbreviation of the time zone, "CET"
}

// Read returns the locale set in the environment if it is installed. If none
// is, programs get C.UTF-8, which is reported as en_US with UTF-8, as in
// Python, unless LC_ALL is C.
func Read(m *host.Machine, now time.Time) Info {
	info := Info{Zone: zone(m, now)}
	all := m.Env("LC_ALL")
	name := all
	for _, v := range []string{"LC_CTYPE", "LANG"} {
		if name == "" {
			name = m.Env(v)
		}
	}
	if !installed(m, name) {
		if all != "" {
			return info
		}
		name = "C.UTF-8"
	}
	info.Language, info.Charset = Split(name)
	return info
}

func isC(name string) bool { return name == "" || name == "C" || name == "POSIX" }

// installed reports whether a locale other than C is installed: built into the
// C library, in its own directory or in the archive.
func installed(m *host.Machine, name string) bool {
	if isC(name) {
		return false
	}
	directory := archiveName(name)
	if directory == "C.utf8" {
		return true
	}
	const dir = "/usr/lib/locale/"
	return m.IsDir(dir+name) || m.IsDir(dir+directory) || inArchive(m.Path(dir+"locale-archive"), directory)
}

// archiveName returns the character set in the C library's spelling: lower
// case, without punctuation.
func archiveName(name string) string {
	base, modifier, hasModifier := strings.Cut(name, "@")
	lang, charset, ok := strings.Cut(base, ".")
	if ok {
		lang += "." + strings.Map(func(r rune) rune {
			if r == '-' || r == '_' || r == '.' || r == ' ' {
				return -1
			}
			return r
		}, strings.ToLower(charset))
	}
	if hasModifier {
		lang += "@" + modifier
	}
	return lang
}

// inArchive looks for a name in the C library's archive of locales. Its
// header holds the offset of the names and their size; they end with zeros.
func inArchive(path, name string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var head struct{ Magic, Serial, HashOffset, HashUsed, HashSize, StringOffset, StringUsed uint32 }
	const magic, limit = 0xde020109, 1 << 20
	if binary.Read(f, binary.LittleEndian, &head) != nil || head.Magic != magic {
		return false
	}
	names := make([]byte, min(head.StringUsed, limit))
	n, err := f.ReadAt(names, int64(head.StringOffset))
	if err != nil && err != io.EOF {
		return false
	}
	return bytes.Contains(append([]byte{0}, names[:n]...), []byte("\x00"+name+"\x00"))
}

// Split splits a locale such as "de_DE.utf8@euro" into language and character
// set, in Python's spelling. Both are empty for C. Without a character set, it
// returns the one used for the language before UTF-8.
func Split(name string) (language, charset string) {
	if isC(name) {
		return "", ""
	}
	base, modifier, _ := strings.Cut(name, "@")
	language, charset, ok := strings.Cut(base, ".")
	switch {
	case ok && isUTF8(charset):
		charset = "UTF-8"
	case ok:
		charset = legacySpelling(charset)
	case modifier == "euro":
		charset = "ISO8859-15"
	default:
		charset = legacyCharset(language)
	}
	if language == "C" {
		language = "en_US"
	}
	return language, charset
}

func isUTF8(charset string) bool {
	return strings.EqualFold(charset, "UTF-8") || strings.EqualFold(charset, "utf8")
}

func legacySpelling(charset string) string {
	c := strings.ToUpper(strings.NewReplacer("-", "", "_", "").Replace(charset))
	if n, ok := strings.CutPrefix(c, "ISO8859"); ok && n != "" {
		return "ISO8859-" + n
	}
	return charset
}

// legacyCharset returns the character set of languages that did not use
// Latin-1.
func legacyCharset(language string) string {
	lang, _, _ := strings.Cut(language, "_")
	switch lang {
	case "bs", "cs", "hr", "hu", "pl", "ro", "sk", "sl", "sq":
		return "ISO8859-2"
	case "lt", "lv":
		return "ISO8859-13"
	case "be", "bg":
		return "CP1251"
	case "mk":
		return "ISO8859-5"
	case "et":
		return "ISO8859-15"
	case "uk":
		return "KOI8-U"
	case "ar":
		return "ISO8859-6"
	case "el":
		return "ISO8859-7"
	case "he", "iw":
		return "ISO8859-8"
	case "tr":
		return "ISO8859-9"
	case "ja":
		return "eucJP"
	case "ko":
		return "eucKR"
	case "th":
		return "ISO8859-11"
	case "zh":
		switch language {
		case "zh_TW":
			return "big5"
		case "zh_HK":
			return "big5hkscs"
		}
		return "gb2312"
	case "ru", "sr", "fa", "hy":
		return "UTF-8"
	}
	return "ISO8859-1"
}

// zone returns the abbreviation of the time zone at a time.
func zone(m *host.Machine, now time.Time) string {
	if m.Live() {
		name, _ := now.Local().Zone()
		return name
	}
	if b, err := m.ReadFile("/etc/localtime"); err == nil {
		if loc, err := time.LoadLocationFromTZData("local", b); err == nil {
			name, _ := now.In(loc).Zone()
			return name
		}
	}
	return "UTC"
}
