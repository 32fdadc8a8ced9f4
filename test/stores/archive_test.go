package stores

import (
	"sync"
	"testing"
	"time"

	"brine/internal/store/returner"
)

// TestArchivedOnce: if several masters archive the rows of one database at the same moment, each
// row is archived once.
func TestArchivedOnce(t *testing.T) {
	t.Parallel()
	c := returnerCases["pgjsonb"](t)
	var masters []returner.Returner
	for range 3 {
		r, err := returner.Open(c.name, returner.Config{Source: options(pairs(c.options)...), Timeout: 30 * time.Second})
		must(t, err)
		defer r.Close()
		masters = append(masters, r)
	}
	must(t, masters[0].Clean(t.Context(), time.Hour, true)) // creates the tables
	for range 20 {
		c.sql(`TRUNCATE jids, salt_returns, jids_archive, salt_returns_archive;
INSERT INTO jids SELECT '2001010100000000' || lpad(i::text, 4, '0'), '{}' FROM generate_series(1, 1000) i;
INSERT INTO salt_returns SELECT 'test.ping', jid, '{}', '{}', 'm1', 'true', '2001-01-01 00:00:00' FROM jids;`)
		var all sync.WaitGroup
		for _, r := range masters {
			all.Go(func() {
				if err := r.Clean(t.Context(), time.Hour, true); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if jobs, rets := c.sql("SELECT COUNT(*) FROM jids_archive"), c.sql("SELECT COUNT(*) FROM salt_returns_archive"); jobs != "1000\n" || rets != "1000\n" {
			t.Fatalf("%q jobs and %q returns are archived", jobs, rets)
		}
	}
}
