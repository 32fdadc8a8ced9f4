package config

import (
	"slices"
	"strings"

	"brine/internal/crypt"
	"brine/internal/field"
	"brine/internal/log"
)

// words are the options that take one of a few words, with those words. A
// daemon would refuse any other at its start; here the place can be told.
var words = map[string][]string{
	"hash_type":                 {"sha256", "md5", "sha1", "sha224", "sha384", "sha512"},
	"ipc_mode":                  {"ipc", "tcp"},
	"encryption_algorithm":      {crypt.OAEPSHA1, crypt.OAEPSHA224},
	"signing_algorithm":         {crypt.PKCS1v15SHA1, crypt.PKCS1v15SHA224},
	"publish_signing_algorithm": {crypt.PKCS1v15SHA1, crypt.PKCS1v15SHA224},
	"log_level":                 log.LevelNames(),
	"log_level_logfile":         log.LevelNames(),
}

// checkWords refuses other words than those.
func (t *Tree) checkWords() []error {
	var faults []error
	for key, all := range words {
		s, ok := t.Values.At(key).(string)
		if !ok || s == "" || slices.Contains(all, s) || strings.HasPrefix(key, "log_") && slices.Contains(all, strings.ToLower(s)) {
			continue
		}
		last := len(all) - 1
		faults = append(faults, t.faultf(key, "expected %s or %s, got %s", strings.Join(all[:last], ", "), all[last], field.Describe(s)))
	}
	return faults
}

// checkLog refuses templates of log lines that cannot be read.
func (t *Tree) checkLog(o *log.Options) []error {
	var faults []error
	for _, f := range []struct{ key, format, time string }{
		{"log_fmt_console", o.Format, o.TimeFormat}, {"log_fmt_logfile", o.FileFormat, o.FileTimeFmt},
	} {
		if _, err := log.NewTemplate(f.format, f.time); err != nil {
			faults = append(faults, t.fault(f.key, err))
		}
	}
	return faults
}
