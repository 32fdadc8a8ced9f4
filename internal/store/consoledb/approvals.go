package consoledb

import (
	"context"
	"strconv"
	"strings"

	"brine/internal/net/remote"
)

// tableApprovals has the jobs that wait for a second user.
const tableApprovals = "console_approvals"

const approvalsSchema = `CREATE SEQUENCE IF NOT EXISTS console_approvals_version;
CREATE TABLE IF NOT EXISTS console_approvals (
  id VARCHAR(40) PRIMARY KEY, home TEXT NOT NULL, owner TEXT NOT NULL, added TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now(), state TEXT NOT NULL,
  decided_by TEXT NOT NULL, minions TEXT NOT NULL, record TEXT NOT NULL, version BIGINT NOT NULL DEFAULT nextval('console_approvals_version'));
ALTER TABLE console_approvals ADD COLUMN IF NOT EXISTS proof TEXT NOT NULL DEFAULT '';
CREATE INDEX IF NOT EXISTS console_approvals_by_time ON console_approvals (added);
`

// Approval is a job that waits for a second user, or did.
type Approval struct {
	// ID is that of the job's salt-api. Home is the master that was asked for the job, which alone starts it.
	ID, Home string
	Owner    string
	// State is Waiting until a user decides, By is that user.
	State, By string
	// Minions are the ids of the job's minions, as JSON. Record is the record of the home.
	Minions, Record string
	// Proof shows that a master wrote the rest. This package does not check it.
	Proof string
}

// Waiting is the state of an approval on which no user has decided.
const Waiting = "waiting"

// Bounds of approvals.
const (
	maxApprovals = 500
	// maxApproval and maxMinions bound the records and the lists of minions that are read, in bytes.
	maxApproval, maxMinions = 16 << 10, 1 << 20
	// approvalsRead bounds the rows of one statement.
	approvalsRead = 20
	// approvalShown is how long rows are shown by the server's clock. approvalOpen is how long another master may decide: less than the hour for
	// which the job waits at its salt-api, so that the decision arrives there in time.
	approvalShown, approvalOpen = "2 hours", "59 minutes"
)

// ApprovalVersions returns the versions of the newest approvals by their ids: a version changes with the row.
func (s *Store) ApprovalVersions(ctx context.Context) (map[string]int64, error) {
	out := map[string]int64{}
	err := s.db.Rows(ctx, `SELECT id, version FROM `+tableApprovals+` WHERE added > now() - interval '`+approvalShown+`'
		ORDER BY added DESC LIMIT `+strconv.Itoa(maxApprovals), nil, func(scan func(...any) error) error {
		var id string
		var version int64
		err := scan(&id, &version)
		out[id] = version
		return err
	})
	return out, failed(err)
}

// EachApproval calls do for approvals. A part that is too large is empty.
func (s *Store) EachApproval(ctx context.Context, ids []string, do func(Approval)) error {
	for len(ids) > 0 {
		some := ids[:min(len(ids), approvalsRead)]
		ids = ids[len(some):]
		args := make([]any, len(some))
		for i, id := range some {
			args[i] = id
		}
		name := strconv.Itoa(maxName)
		columns := strings.ReplaceAll(`id, left(home, N), left(owner, N), left(state, 20), left(decided_by, N), `, "N", name) +
			bounded("minions", maxMinions) + `, ` + bounded("record", maxApproval) + `, left(proof, 200)`
		err := s.db.Rows(ctx, `SELECT `+columns+` FROM `+tableApprovals+` WHERE id IN `+remote.In(1, len(some)), args, func(scan func(...any) error) error {
			var a Approval
			if err := scan(&a.ID, &a.Home, &a.Owner, &a.State, &a.By, &a.Minions, &a.Record, &a.Proof); err != nil {
				return err
			}
			do(a)
			return nil
		})
		if err != nil {
			return failed(err)
		}
	}
	return nil
}

// AddApproval stores an approval, unless one with its id is stored.
func (s *Store) AddApproval(ctx context.Context, a Approval) error {
	_, err := s.db.Do(ctx, `INSERT INTO `+tableApprovals+` (id, home, owner, state, decided_by, minions, record, proof)
		VALUES `+remote.In(1, 8)+` ON CONFLICT (id) DO NOTHING`,
		a.ID, plain(a.Home), plain(a.Owner), plain(a.State), plain(a.By), plain(a.Minions), plain(a.Record), plain(a.Proof))
	return failed(err)
}

// DecideApproval records the decision on an approval, with its proof, if it still waits and has the proof before, and reports whether it did. Of
// several decisions at once one is recorded. The rest of the row becomes what the decision is on: another program may have changed it since.
func (s *Store) DecideApproval(ctx context.Context, a Approval, before string) (bool, error) {
	n, err := s.db.Do(ctx, `UPDATE `+tableApprovals+` SET state = $2, decided_by = $3, proof = $4, home = $6, owner = $7, minions = $8, record = $9,
		version = nextval('console_approvals_version') WHERE id = $1 AND proof = $5 AND state = '`+Waiting+`' AND added > now() - interval '`+approvalOpen+`'`,
		a.ID, plain(a.State), plain(a.By), plain(a.Proof), plain(before), plain(a.Home), plain(a.Owner), plain(a.Minions), plain(a.Record))
	return n == 1, failed(err)
}

// ChangeApproval writes an approval and what became of it at its home, if the stored state is still from.
func (s *Store) ChangeApproval(ctx context.Context, a Approval, from string) error {
	_, err := s.db.Do(ctx, `UPDATE `+tableApprovals+` SET state = $3, decided_by = $4, record = $5, owner = $6, minions = $7, proof = $8,
		version = nextval('console_approvals_version') WHERE id = $1 AND home = $2 AND state = $9`, a.ID, plain(a.Home), plain(a.State), plain(a.By),
		plain(a.Record), plain(a.Owner), plain(a.Minions), plain(a.Proof), strings.ToValidUTF8(from, ""))
	return failed(err)
}
