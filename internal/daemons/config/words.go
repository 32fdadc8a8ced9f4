package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"brine/internal/base/field"
	"brine/internal/base/log"
	"brine/internal/net/crypt"
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
	for _, key := range slices.Sorted(maps.Keys(words)) {
		all := words[key]
		s, ok := t.Values.At(key).(string)
		if !ok || s == "" || slices.Contains(all, s) || strings.HasPrefix(key, "log_") && slices.Contains(all, strings.ToLower(s)) {
			continue
		}
		last := len(all) - 1
		faults = append(faults, t.faultf(key, "expected %s or %s, got %s", strings.Join(all[:last], ", "), all[last], field.Describe(s)))
	}
	return faults
}

// UnknownName is the error for a name in an option that is none of the known ones. It says
// where the option is set.
func (t *Tree) UnknownName(key, name string, known []string) error {
	return t.faultf(key, "there is no %q; use one of %s", name, strings.Join(known, ", "))
}

// checkLog warns about templates of log lines that cannot be used, and takes
// them away, so that the defaults count: a log in another form is better than a
// daemon that does not start.
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
			t.warn(key, "the log format cannot be used; its default counts", "err", err)
			t.Values.Delete(key)
		}
	}
}
