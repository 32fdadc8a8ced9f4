package master

import (
	"cmp"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/ha/replica"
	"brine/internal/py/value"
)

// maxKeyRecords bounds what keyRecords returns.
const maxKeyRecords = 1000

// keyRecords returns the state of minion keys, including deleted ones: since when, on which
// master and by whom it was decided. match is a glob of ids.
func (c *replicated) keyRecords(match string) (*value.Dict, error) {
	if c == nil {
		return nil, salt.Errorf(salt.Invalid, "only masters of a cluster without a shared directory have records of keys")
	}
	fits := target.ParseGlob(match)
	out := value.NewDict(0)
	more := int64(0)
	err := c.records.Each(kindKey, func(r *replica.Record) {
		switch {
		case r == nil || !fits.Match(r.Name):
		case out.Len() >= maxKeyRecords:
			more++
		default:
			out.Set(r.Name, keyRecord(r))
		}
	})
	if err != nil {
		return nil, err
	}
	d := value.DictOf("keys", out)
	if more > 0 {
		d.Set("more", more)
	}
	return d, nil
}

func keyRecord(r *replica.Record) *value.Dict {
	state := "deleted"
	for i, st := range replica.KeyStates(r.Value) {
		if i == 0 {
			state = st.String()
		} else {
			state += ", " + st.String()
		}
	}
	return value.DictOf("state", state, "since", r.Made().UTC().Format(time.RFC3339), "on", r.By, "who", cmp.Or(r.Who, "unknown"), "how",
		cmp.Or(r.How, "file changed"))
}
