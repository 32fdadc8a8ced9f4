package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"brine/internal/base/field"
	"brine/internal/base/log"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

// words are the options with a fixed set of values. A daemon would reject
// others at its start; here the error includes the place.
var words = map[string][]string{
	"hash_type":                 {"sha256", "md5", "sha1", "sha224", "sha384", "sha512"},
	"ipc_mode":                  {"ipc", "tcp"},
	"encryption_algorithm":      {crypt.OAEPSHA1, crypt.OAEPSHA224},
	"signing_algorithm":         {crypt.PKCS1v15SHA1, crypt.PKCS1v15SHA224},
	"publish_signing_algorithm": {crypt.PKCS1v15SHA1, crypt.PKCS1v15SHA224},
	"log_level":                 log.LevelNames(),
	"log_level_logfile":         log.LevelNames(),
	"log_format":                {log.FormatText, log.FormatJSON},
	"return_to":                 {"publisher", "any"},
}

// checkWords rejects other values.
func (t *Tree) checkWords() []error {
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(words)) {
		all := words[key]
		v := t.Values.At(key)
		s := value.Str(v)
		if !isScalar(v) || s == "" || slices.Contains(all, s) || strings.HasPrefix(key, "log_") && slices.Contains(all, strings.ToLower(s)) {
			continue
		}
		last := len(all) - 1
		faults = append(faults, t.faultf(key, "expected %s or %s, got %s", strings.Join(all[:last], ", "), all[last], field.Describe(v)))
	}
	return faults
}

// checkLog warns about invalid templates of log lines and removes them, so that
// the defaults apply: a log in another format is better than a daemon that does
// not start.
func (t *Tree) checkLog() {
	template := func(s string) error { _, err := log.NewTemplate(s, ""); return err }
	checks := map[string]func(string) error{
		"log_fmt_console": template, "log_fmt_logfile": template, "log_fmt_jid": log.CheckJIDFormat,
		"log_datefmt": nil, "log_datefmt_console": nil, "log_datefmt_logfile": nil,
	}
	for _, key := range slices.Sorted(maps.Keys(checks)) {
		check := checks[key]
		v, ok := t.Values.Get(key)
		if !ok || v == nil {
			continue
		}
		var err error
		if s, is := v.(string); !is {
			err = fmt.Errorf("expected text, got %s", field.Describe(v))
		} else if check != nil {
			err = check(s)
		}
		if err != nil {
			t.warn(key, "invalid log format; using the default", "err", err)
			t.Values.Delete(key)
		}
	}
}
