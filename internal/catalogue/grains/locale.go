package grains

import (
	"context"
	"time"

	"brine/internal/host/locale"
	"brine/internal/py/value"
)

func init() { collectors.Register("locale_info", localeInfo) }

// localeInfo returns the values that Python would find. The language of the C
// locale is null.
func localeInfo(_ context.Context, c *collection) (*value.Dict, error) {
	l := locale.Read(c.Machine, time.Now())
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return value.DictOf("locale_info", value.DictOf(
		"defaultlanguage", orNull(l.Language), "defaultencoding", orNull(l.Charset), "detectedencoding", "utf-8", "timezone", l.Zone,
	)), nil
}
