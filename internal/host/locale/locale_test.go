package locale

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"brine/internal/host"
)

// TestSplit compares with the results of Python's locale.getlocale.
func TestSplit(t *testing.T) {
	for name, want := range map[string][2]string{
		"":                     {"", ""},
		"C":                    {"", ""},
		"POSIX":                {"", ""},
		"C.UTF-8":              {"en_US", "UTF-8"},
		"C.utf8":               {"en_US", "UTF-8"},
		"en_US.UTF-8":          {"en_US", "UTF-8"},
		"fr_FR.utf8":           {"fr_FR", "UTF-8"},
		"ca_ES.UTF-8@valencia": {"ca_ES", "UTF-8"},
		"xx_YY.UTF-8":          {"xx_YY", "UTF-8"},
		"en_US":                {"en_US", "ISO8859-1"},
		"de_DE":                {"de_DE", "ISO8859-1"},
		"de_DE@euro":           {"de_DE", "ISO8859-15"},
		"de_DE.ISO-8859-15":    {"de_DE", "ISO8859-15"},
		"cs_CZ":                {"cs_CZ", "ISO8859-2"},
		"ru_RU":                {"ru_RU", "UTF-8"},
		"ja_JP.eucJP":          {"ja_JP", "eucJP"},
		"zh_TW":                {"zh_TW", "big5"},
		"zh_HK":                {"zh_HK", "big5hkscs"},
		"uk_UA.KOI8-U":         {"uk_UA", "KOI8-U"},
	} {
		if l, c := Split(name); l != want[0] || c != want[1] {
			t.Errorf("%q is %q, %q, want %q", name, l, c, want)
		}
	}
}

// archive writes a locale archive that holds only names.
func archive(t *testing.T, m *host.Machine, names string) {
	t.Helper()
	path := m.Path("/usr/lib/locale/locale-archive")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	for i, n := range []uint32{0xde020109, 1, 56, 0, 0, 64, uint32(len(names))} {
		binary.LittleEndian.PutUint32(b[4*i:], n)
	}
	if err := os.WriteFile(path, append(b, names...), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestRead(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	archive(t, m, "en_US.utf8\x00de_DE.iso88591\x00")
	if err := os.MkdirAll(m.Path("/usr/lib/locale/fr_FR.utf8"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env  map[string]string
		want Info
	}{
		{nil, Info{"en_US", "UTF-8", "UTC"}}, // programs get C.UTF-8
		{map[string]string{"LANG": "C"}, Info{"en_US", "UTF-8", "UTC"}},
		{map[string]string{"LC_ALL": "C", "LANG": "fr_FR.UTF-8"}, Info{"", "", "UTC"}},
		{map[string]string{"LC_ALL": "C.UTF-8"}, Info{"en_US", "UTF-8", "UTC"}},
		{map[string]string{"LANG": "fr_FR.UTF-8"}, Info{"fr_FR", "UTF-8", "UTC"}},
		{map[string]string{"LANG": "en_US.UTF-8", "LC_CTYPE": "fr_FR.UTF-8"}, Info{"fr_FR", "UTF-8", "UTC"}},
		{map[string]string{"LANG": "de_DE.ISO-8859-1"}, Info{"de_DE", "ISO8859-1", "UTC"}},
		{map[string]string{"LANG": "es_ES.UTF-8"}, Info{"en_US", "UTF-8", "UTC"}}, // not installed
		{map[string]string{"LC_ALL": "es_ES.UTF-8"}, Info{"", "", "UTC"}},
		{map[string]string{"LANG": "US.utf8"}, Info{"en_US", "UTF-8", "UTC"}}, // only the end of a name
	} {
		m.Getenv = func(name string) string { return c.env[name] }
		if got := Read(m, time.Now()); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.env, got, c.want)
		}
	}
}

func TestZone(t *testing.T) {
	data, err := os.ReadFile("/usr/share/zoneinfo/Europe/Berlin")
	if err != nil {
		t.Skip("time zones are not installed")
	}
	m := &host.Machine{Root: t.TempDir()}
	if err := os.MkdirAll(m.Path("/etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.Path("/etc/localtime"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	for month, want := range map[time.Month]string{time.January: "CET", time.July: "CEST"} {
		if got := Read(m, time.Date(2024, month, 1, 0, 0, 0, 0, time.UTC)).Zone; got != want {
			t.Errorf("%s: %s, want %s", month, got, want)
		}
	}
}
