package beacons

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"brine/internal/py/pyre"
	"brine/internal/py/value"
)

// patterns reads the setting tags, which has a pattern for each tag suffix.
func patterns(c Config) (tags []string, found map[string]*pyre.Regexp, err error) {
	v := c.Get("tags")
	all, ok := v.(*value.Dict)
	if v != nil && !ok {
		return nil, nil, errors.New("tags: expected a map")
	}
	found = map[string]*pyre.Regexp{}
	for k, v := range all.All() {
		tag := value.Str(k)
		set, _ := v.(*value.Dict)
		pattern := set.Str("regex")
		if pattern == "" {
			continue
		}
		if found[tag], err = pyre.Compile(pattern, 0); err != nil {
			return nil, nil, fmt.Errorf("tags: %s: %w", tag, err)
		}
		tags = append(tags, tag)
	}
	return tags, found, nil
}

func validLog(c Config) error {
	if path, ok := c.Get("file").(string); !ok || path == "" {
		return errors.New("it requires file, a path")
	}
	_, _, err := patterns(c)
	return err
}

func init() {
	kinds.Register("log", func(b machine) Beacon {
		return Beacon{
			Settings: "file tags",
			Doc:      "Report new lines of a file that match a regular expression; each tag has one.",
			Example:  "- file: /var/log/syslog\n- tags:\n    oom:\n      regex: .*Out of memory.*\n",
			Validate: validLog, Look: b.log,
		}
	})
}

// log reports the new lines of a file whose beginning matches a pattern, with
// Salt's fields and values.
func (b machine) log(_ context.Context, l Look) (out []*value.Dict, err error) {
	path, _ := l.Config.Get("file").(string)
	text, err := grown(l.Memory, b.m.Path(path), func(b []byte) int { return bytes.LastIndexByte(b, '\n') + 1 })
	if err != nil {
		return nil, err
	}
	tags, found, err := patterns(l.Config)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(bytes.ToValidUTF8(text, []byte("\ufffd")))) {
		line = strings.TrimRight(line, "\r\n")
		for _, tag := range tags {
			match, err := found[tag].Match(line)
			switch {
			case err != nil:
				out = append(out, value.DictOf("tag", tag, "match", "no", "raw", "", "error", "bad match"))
			case match != nil:
				out = append(out, value.DictOf("tag", tag, "match", "yes", "raw", line, "error", ""))
			}
		}
	}
	return out, nil
}
